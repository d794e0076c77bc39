"""Answers in Anthropic's messages."""

from holdfast.broker.dialects.answer import AnswerReader, Delta, Reason, Said, Thinking
from holdfast.broker.dialects.json import Json, dumped, string, table, tables
from holdfast.broker.dialects.sequence import Sequence

_REASONS = {
    "max_tokens": Reason.LENGTH,
    "model_context_window_exceeded": Reason.LENGTH,
    "refusal": Reason.FILTERED,
    "tool_use": Reason.CALLS,
}


class MessagesReader(AnswerReader):
    def __init__(self, name: str) -> None:
        self._name = name
        self._row = Sequence()

    def read(self, data: Json) -> list[Delta]:
        index = data.get("index")
        at = index if isinstance(index, int) else 0
        match data.get("type"):
            case "content_block_start":
                return self._begin(at, table(data.get("content_block")))
            case "content_block_delta":
                delta = table(data.get("delta"))
                found = self._row.say(Said(string(delta.get("text"))))
                found += self._row.say(Thinking(string(delta.get("thinking"))))
                return found + self._row.part(at, string(delta.get("partial_json")))
            case "content_block_stop":
                return self._row.end(at)
            case "message_delta":
                self._finish(table(data.get("delta")).get("stop_reason"))
        return []

    def whole(self, data: Json) -> list[Delta]:
        found: list[Delta] = []
        for at, block in enumerate(tables(data.get("content"))):
            found += self._begin(at, block) + self._row.end(at)
        self._finish(data.get("stop_reason") or "end_turn")
        return found

    def end(self) -> list[Delta]:
        return self._row.end_all()

    def _begin(self, at: int, block: Json) -> list[Delta]:
        if block.get("type") == "tool_use":
            call_id = string(block.get("id")) or f"call_{self._name}{at}"
            found = self._row.begin(at, call_id, string(block.get("name")))
            given = table(block.get("input"))
            return found + (self._row.part(at, dumped(given)) if given else [])
        found = self._row.say(Said(string(block.get("text"))))
        return found + self._row.say(Thinking(string(block.get("thinking"))))

    def _finish(self, reason: object) -> None:
        if reason:
            self.reason = _REASONS.get(str(reason), Reason.STOP)
