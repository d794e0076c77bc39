"""Answers in OpenAI's responses."""

from holdfast.broker.dialects.answer import AnswerReader, Delta, Reason, Said, Thinking
from holdfast.broker.dialects.json import Json, string, table, tables, texts
from holdfast.broker.dialects.sequence import Key, Sequence

_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class ResponsesReader(AnswerReader):
    def __init__(self, name: str) -> None:
        self._name = name
        self._row = Sequence()
        self._told: set[Key] = set()
        """Items of which there was a piece: others tell all of them at their end only."""

    def read(self, data: Json) -> list[Delta]:
        kind = string(data.get("type"))
        at = _key(data)
        if kind in _TEXTS:
            self._told.add(at)
            return self._row.say(Said(string(data.get("delta"))))
        if kind in _THOUGHTS:
            self._told.add(at)
            return self._row.say(Thinking(string(data.get("delta"))))
        match kind:
            case "response.reasoning_summary_part.added":
                return self._row.say(Thinking("\n\n")) if data.get("summary_index") else []
            case "response.output_item.added":
                return self._begin(at, table(data.get("item")))
            case "response.function_call_arguments.delta":
                return self._row.part(at, string(data.get("delta")))
            case "response.output_item.done":
                return self._item(at, table(data.get("item")))
            case "response.completed" | "response.incomplete":
                return self._finish(table(data.get("response")))
        return []

    def whole(self, data: Json) -> list[Delta]:
        found: list[Delta] = []
        for at, item in enumerate(tables(data.get("output"))):
            found += self._item(at, item)
        return found + self._finish(data)

    def end(self) -> list[Delta]:
        return self._row.end_all()

    def _begin(self, at: Key, item: Json) -> list[Delta]:
        if item.get("type") != "function_call":
            return []
        call_id = string(item.get("call_id")) or f"call_{self._name}{at}"
        return self._row.begin(at, call_id, string(item.get("name")))

    def _item(self, at: Key, item: Json) -> list[Delta]:
        """A whole one."""
        match item.get("type"):
            case "function_call":
                begun = self._begin(at, item)
                return begun + self._row.end(at, string(item.get("arguments")))
            case "message" if at not in self._told:
                said = [string(part.get("text")) or string(part.get("refusal")) for part in tables(item.get("content"))]
                return self._row.say(Said("".join(said)))
            case "reasoning" if at not in self._told:
                thoughts = [*texts(item.get("summary")), *texts(item.get("content"))]
                return self._row.say(Thinking("\n\n".join(thoughts)))
        return []

    def _finish(self, response: Json) -> list[Delta]:
        why = table(response.get("incomplete_details")).get("reason")
        if response.get("status") == "incomplete":
            self.reason = Reason.FILTERED if why == "content_filter" else Reason.LENGTH
        else:
            self.reason = Reason.CALLS if self._row.any else Reason.STOP
        return self._row.end_all()


def _key(data: Json) -> Key:
    index = data.get("output_index")
    return index if isinstance(index, int) else string(data.get("item_id"))
