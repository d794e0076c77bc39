"""Answers in Gemini's dialect. A call comes whole, in one part, and may have no id."""

from collections.abc import Iterable, Iterator

from holdfast.broker.dialects.answer import CannotTell, Delta, Reason, TextDelta, ThoughtDelta
from holdfast.broker.dialects.json import Json, dumped, length, number, string, table, tables
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading

_REASONS = {
    "MAX_TOKENS": Reason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
        Reason.FILTERED,
    ),
}
_ENDS = ("STOP", "FINISH_REASON_UNSPECIFIED", *_REASONS)


class GeminiReader(AnswerReader):
    essential = "candidates"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._calls = 0

    def read(self, data: Json) -> Iterable[Delta]:
        if data.get("error"):
            self.reading.fail(data["error"])
            return ()
        candidate = next(iter(tables(data.get("candidates"))), {})
        parts = tables(table(candidate.get("content")).get("parts"))
        self.reading.begun = self.reading.begun or bool(parts)
        self.reading.characters += sum(length(part.get("text")) for part in parts)
        blocked = bool(table(data.get("promptFeedback")).get("blockReason"))
        if candidate.get("finishReason") or blocked:
            self.reading.begun = True
            self.reading.end()
        _bill(data.get("usageMetadata"), self.reading)
        return self._deltas(parts, string(candidate.get("finishReason")), blocked=blocked)

    def read_whole(self, data: Json) -> Iterable[Delta]:
        found = self.read(data)
        self.reading.begun = True
        self.reading.end()
        return self._all(found)

    def _all(self, found: Iterable[Delta]) -> Iterator[Delta]:
        yield from found
        self.reason = self.reason or self._usual()

    def _deltas(self, parts: list[Json], reason: str, *, blocked: bool) -> Iterator[Delta]:
        for part in parts:
            yield from self._part(part)
        if reason and reason not in _ENDS:
            raise CannotTell(f"the model has stopped with {reason}")
        if blocked:
            self.reason = Reason.FILTERED
        elif reason:
            self.reason = _REASONS.get(reason, self._usual())

    def _part(self, part: Json) -> list[Delta]:
        if "functionCall" in part:
            call = table(part["functionCall"])
            self._calls += 1
            call_id = string(call.get("id")) or f"call_{self.name}{self._calls}"
            begun = self._queue.begin(self._calls, call_id, string(call.get("name")))
            return begun + self._queue.end(self._calls, dumped(table(call.get("args"))))
        text = string(part.get("text"))
        if not text and (kinds := set(part) - {"text", "thought", "thoughtSignature"}):
            raise CannotTell(f"it has answered with {', '.join(sorted(kinds))}")
        return self._queue.say(ThoughtDelta(text) if part.get("thought") is True else TextDelta(text))

    def _usual(self) -> Reason:
        return Reason.CALLS if self._queue.any else Reason.STOP


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    reading.input = number(usage.get("promptTokenCount")) + number(usage.get("toolUsePromptTokenCount"))
    reading.output = number(usage.get("candidatesTokenCount")) + number(usage.get("thoughtsTokenCount"))
    reading.cached = number(usage.get("cachedContentTokenCount"))
