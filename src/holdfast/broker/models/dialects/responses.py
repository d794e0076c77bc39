"""OpenAI's responses."""

from collections.abc import Mapping

from holdfast.broker.models.answering.reading import Reading, failure, length, number, table
from holdfast.broker.models.dialects import openai_errors
from holdfast.broker.models.dialects.base import Dialect, event

_PROLOGUE = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Responses(Dialect):
    def failure(self, status: int, message: str, code: str) -> Mapping[str, object]:
        return openai_errors.failure(status, message, code)

    def broken(self, message: str) -> bytes:
        error = {"code": "server_error", "message": message}
        failed = {"status": "failed", "error": error, "output": []}
        # Nobody counts; but OpenCode skips an event without a number, and takes the half for a whole answer.
        number = {"sequence_number": 0}
        return event({"type": "error", **error, "param": None, **number}, "error") + event(
            {"type": "response.failed", "response": failed, **number}, "response.failed"
        )

    def read(self, data: Mapping[str, object], reading: Reading) -> None:
        kind = str(data.get("type"))
        if kind == "error":
            error = table(data.get("error"))
            failure(reading, error or {name: value for name, value in data.items() if name != "type"}, kind)
            return
        if kind in _ENDS:
            response = table(data.get("response"))
            if kind == "response.failed":
                failure(reading, response.get("error"), kind)
            else:
                reading.begun = True
            reading.finished = reading.complete = True
            _bill(response.get("usage"), reading)
        elif kind.startswith("response.") and kind not in _PROLOGUE:
            reading.begun = True
            reading.characters += length(data.get("delta"))

    def read_whole(self, data: Mapping[str, object], reading: Reading) -> None:
        reading.begun = reading.finished = reading.complete = True
        _bill(data.get("usage"), reading)


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("input_tokens_details"))
    reading.input = number(usage.get("input_tokens"))
    reading.output = number(usage.get("output_tokens"))
    reading.cached = number(details.get("cached_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))
