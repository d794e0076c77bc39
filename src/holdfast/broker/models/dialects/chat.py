"""OpenAI's chat completions, and those of everybody who has copied them."""

from collections.abc import Mapping

from holdfast.broker.models.answering.reading import Reading, amount, failure, length, number, table, tables
from holdfast.broker.models.dialects import openai_errors
from holdfast.broker.models.dialects.base import Dialect, event


class Chat(Dialect):
    def failure(self, status: int, message: str, code: str) -> Mapping[str, object]:
        return openai_errors.failure(status, message, code)

    def broken(self, message: str) -> bytes:
        return event(self.failure(502, message, "stream_broken"))

    def read(self, data: Mapping[str, object], reading: Reading) -> None:
        if data.get("error"):
            failure(reading, data["error"])
        for choice in tables(data.get("choices")):
            self._said(table(choice.get("delta")), reading)
            if choice.get("finish_reason"):
                reading.finished = True
        _bill(data.get("usage"), reading)

    def read_whole(self, data: Mapping[str, object], reading: Reading) -> None:
        for choice in tables(data.get("choices")):
            self._said(table(choice.get("message")), reading)
        reading.finished = reading.complete = True
        _bill(data.get("usage"), reading)

    def _said(self, delta: Mapping[str, object], reading: Reading) -> None:
        said = length(delta.get("content")) + length(delta.get("reasoning_content")) + length(delta.get("reasoning"))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            said += 1 + length(table(table(call).get("function")).get("arguments"))
        reading.characters += said
        reading.begun = reading.begun or said > 0

    def is_bill_only(self, data: Mapping[str, object]) -> bool:
        return data.get("choices") == [] and isinstance(data.get("usage"), dict)


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("prompt_tokens_details"))
    reading.input = number(usage.get("prompt_tokens"))
    reading.output = number(usage.get("completion_tokens"))
    reading.cached = number(details.get("cached_tokens")) or number(usage.get("prompt_cache_hit_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))
    reading.cost_usd = amount(usage.get("cost"))
