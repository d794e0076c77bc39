"""Answers in Gemini's dialect. A call comes whole, in one part, and may have no id."""

from holdfast.broker.dialects.answer import AnswerReader, CannotTell, Delta, Reason, Said, Thinking
from holdfast.broker.dialects.json import Json, dumped, string, table, tables
from holdfast.broker.dialects.sequence import Sequence

_REASONS = {
    "MAX_TOKENS": Reason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
        Reason.FILTERED,
    ),
}
_ENDS = ("STOP", "FINISH_REASON_UNSPECIFIED", *_REASONS)


class GeminiReader(AnswerReader):
    def __init__(self, name: str) -> None:
        self._name = name
        self._row = Sequence()
        self._calls = 0

    def read(self, data: Json) -> list[Delta]:
        found: list[Delta] = []
        for candidate in tables(data.get("candidates"))[:1]:
            for part in tables(table(candidate.get("content")).get("parts")):
                found += self._part(part)
            self._finish(string(candidate.get("finishReason")))
        if table(data.get("promptFeedback")).get("blockReason"):
            self.reason = Reason.FILTERED
        return found

    def whole(self, data: Json) -> list[Delta]:
        found = self.read(data)
        self.reason = self.reason or (Reason.CALLS if self._row.any else Reason.STOP)
        return found

    def _part(self, part: Json) -> list[Delta]:
        if "functionCall" in part:
            call = table(part["functionCall"])
            self._calls += 1
            call_id = string(call.get("id")) or f"call_{self._name}{self._calls}"
            begun = self._row.begin(self._calls, call_id, string(call.get("name")))
            return begun + self._row.end(self._calls, dumped(table(call.get("args"))))
        text = string(part.get("text"))
        if not text and (kinds := set(part) - {"text", "thought", "thoughtSignature"}):
            raise CannotTell(f"it has answered with {', '.join(sorted(kinds))}")
        return self._row.say(Thinking(text) if part.get("thought") is True else Said(text))

    def _finish(self, reason: str) -> None:
        if not reason:
            return
        if reason not in _ENDS:
            raise CannotTell(f"the model has stopped with {reason}")
        self.reason = _REASONS.get(reason, Reason.CALLS if self._row.any else Reason.STOP)
