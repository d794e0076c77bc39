"""Answers in OpenAI's chat completions, and in those of everybody who has copied them."""

from collections.abc import Iterator

from holdfast.broker.dialects.answer import CannotTell, Delta, Reason, TextDelta, ThoughtDelta
from holdfast.broker.dialects.json import Json, amount, length, number, string, table, tables
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading

_REASONS = {"length": Reason.LENGTH, "content_filter": Reason.FILTERED}


class ChatReader(AnswerReader):
    essential = "choices"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ids: dict[int, str] = {}
        """Of the last call that was told with this index."""
        self._count = 0

    def read(self, data: Json) -> Iterator[Delta]:
        if data.get("error"):
            self.reading.fail(data["error"])
        choices = tables(data.get("choices"))
        for choice in choices:
            _measure(table(choice.get("delta")), self.reading)
            self.reading.finished = self.reading.finished or bool(choice.get("finish_reason"))
        self.is_only_usage = data.get("choices") == [] and isinstance(data.get("usage"), dict)
        _bill(data.get("usage"), self.reading)
        return self._deltas(choices, "delta")

    def read_whole(self, data: Json) -> Iterator[Delta]:
        choices = tables(data.get("choices"))
        for choice in choices:
            _measure(table(choice.get("message")), self.reading)
        self.reading.end()
        _bill(data.get("usage"), self.reading)
        return self._deltas(choices, "message", "stop")

    def _deltas(self, choices: list[Json], where: str, otherwise: str = "") -> Iterator[Delta]:
        for choice in choices[:1]:
            yield from self._message(table(choice.get(where)))
            yield from self._finish(choice.get("finish_reason") or otherwise)

    def _message(self, told: Json) -> Iterator[Delta]:
        thought = string(told.get("reasoning_content")) or string(told.get("reasoning"))
        yield from self._queue.say(ThoughtDelta(thought))
        yield from self._queue.say(TextDelta(string(told.get("content")) + string(told.get("refusal"))))
        for position, call in enumerate(tables(told.get("tool_calls"))):
            yield from self._call(call, position)

    def _call(self, call: Json, position: int) -> Iterator[Delta]:
        """Some count all calls as the first one, and tell them apart by their ids only."""
        index = call.get("index")
        at = index if isinstance(index, int) else position
        function = table(call.get("function"))
        call_id = string(call.get("id"))
        if at not in self._ids or (call_id and call_id != self._ids[at]):
            self._count += 1
            self._ids[at] = call_id or f"call_{self.name}{self._count}"
            yield from self._queue.begin(self._ids[at], self._ids[at], string(function.get("name")))
        yield from self._queue.part(self._ids[at], string(function.get("arguments")))

    def _finish(self, reason: object) -> list[Delta]:
        if not reason:
            return []
        if reason == "error":
            raise CannotTell("the model has stopped with an error")
        self.reason = _REASONS.get(str(reason), Reason.CALLS if self._queue.any else Reason.STOP)
        return self._queue.end_all()


def _measure(told: Json, reading: Reading) -> None:
    said = sum(length(told.get(name)) for name in ("content", "reasoning_content", "reasoning"))
    for call in tables(told.get("tool_calls")):
        said += 1 + length(table(call.get("function")).get("arguments"))
    reading.characters += said
    reading.begun = reading.begun or said > 0


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("prompt_tokens_details"))
    reading.input = number(usage.get("prompt_tokens"))
    reading.output = number(usage.get("completion_tokens"))
    reading.cached = number(details.get("cached_tokens")) or number(usage.get("prompt_cache_hit_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))
    reading.cost_usd = amount(usage.get("cost"))
