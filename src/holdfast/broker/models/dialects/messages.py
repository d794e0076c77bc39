"""Anthropic's messages."""

from collections.abc import Mapping

from holdfast.broker.models.answering.reading import Reading, failure, length, number, table
from holdfast.broker.models.dialects.base import Dialect, event

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class Messages(Dialect):
    def failure(self, status: int, message: str, code: str) -> Mapping[str, object]:
        return {"type": "error", "error": {"type": _TYPES.get(status, "api_error"), "message": message, "code": code}}

    def broken(self, message: str) -> bytes:
        return event(self.failure(502, message, "stream_broken"), "error")

    def read(self, data: Mapping[str, object], reading: Reading) -> None:
        match data.get("type"):
            case "message_start":
                _bill(table(data.get("message")).get("usage"), reading)
            case "message_delta":
                reading.begun = True
                reading.finished = reading.finished or bool(table(data.get("delta")).get("stop_reason"))
                _bill(data.get("usage"), reading)
            case "message_stop":
                reading.finished = reading.complete = True
            case "error":
                failure(reading, data.get("error"))
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                reading.begun = True
                delta = table(data.get("delta"))
                reading.characters += sum(length(delta.get(name)) for name in ("text", "thinking", "partial_json"))

    def read_whole(self, data: Mapping[str, object], reading: Reading) -> None:
        reading.begun = reading.finished = reading.complete = True
        _bill(data.get("usage"), reading)


def _bill(usage: object, reading: Reading) -> None:
    """Input is told at the beginning, output at the end; what is not told again stays as it was."""
    if not isinstance(usage, dict):
        return
    if "input_tokens" in usage:
        cached, written = number(usage.get("cache_read_input_tokens")), number(usage.get("cache_creation_input_tokens"))
        total = number(usage.get("input_tokens")) + cached + written
        if total >= (reading.input or 0):
            reading.input, reading.cached, reading.cache_written = total, cached, written
    if "output_tokens" in usage:
        reading.output = number(usage.get("output_tokens"))
