"""Answers in OpenAI's chat completions."""

from holdfast.broker.dialects.answer import AnswerReader, CannotTell, Delta, Reason, Said, Thinking
from holdfast.broker.dialects.json import Json, string, table, tables
from holdfast.broker.dialects.sequence import Sequence

_REASONS = {"length": Reason.LENGTH, "content_filter": Reason.FILTERED}


class ChatReader(AnswerReader):
    def __init__(self, name: str) -> None:
        self._name = name
        self._row = Sequence()
        self._ids: dict[int, str] = {}
        """Of the last call that was told with this index."""
        self._count = 0

    def read(self, data: Json) -> list[Delta]:
        found: list[Delta] = []
        for choice in tables(data.get("choices"))[:1]:
            found += self._message(table(choice.get("delta")))
            found += self._finish(choice.get("finish_reason"))
        return found

    def whole(self, data: Json) -> list[Delta]:
        found: list[Delta] = []
        for choice in tables(data.get("choices"))[:1]:
            found += self._message(table(choice.get("message")))
            found += self._finish(choice.get("finish_reason") or "stop")
        return found

    def end(self) -> list[Delta]:
        return self._row.end_all()

    def _message(self, told: Json) -> list[Delta]:
        thought = string(told.get("reasoning_content")) or string(told.get("reasoning"))
        found = self._row.say(Thinking(thought))
        found += self._row.say(Said(string(told.get("content")) + string(told.get("refusal"))))
        for position, call in enumerate(tables(told.get("tool_calls"))):
            found += self._call(call, position)
        return found

    def _call(self, call: Json, position: int) -> list[Delta]:
        """Some count all calls as the first one, and tell them apart by their ids only."""
        index = call.get("index")
        at = index if isinstance(index, int) else position
        function = table(call.get("function"))
        found: list[Delta] = []
        call_id = string(call.get("id"))
        if at not in self._ids or (call_id and call_id != self._ids[at]):
            self._count += 1
            self._ids[at] = call_id or f"call_{self._name}{self._count}"
            found += self._row.begin(self._ids[at], self._ids[at], string(function.get("name")))
        return found + self._row.part(self._ids[at], string(function.get("arguments")))

    def _finish(self, reason: object) -> list[Delta]:
        if not reason:
            return []
        if reason == "error":
            raise CannotTell("the model has stopped with an error")
        self.reason = _REASONS.get(str(reason), Reason.CALLS if self._row.any else Reason.STOP)
        return self._row.end_all()
