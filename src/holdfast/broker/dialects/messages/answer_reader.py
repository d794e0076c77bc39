"""Answers in Anthropic's messages."""

from collections.abc import Iterable, Iterator

from holdfast.broker.dialects.answer import Delta, Reason, TextDelta, ThoughtDelta
from holdfast.broker.dialects.json import Json, dumped, length, number, string, table, tables
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading

_REASONS = {
    "max_tokens": Reason.LENGTH,
    "model_context_window_exceeded": Reason.LENGTH,
    "refusal": Reason.FILTERED,
    "tool_use": Reason.CALLS,
}


class MessagesReader(AnswerReader):
    essential = "role"

    def read(self, data: Json) -> Iterable[Delta]:
        reading, delta = self.reading, table(data.get("delta"))
        match data.get("type"):
            case "message_start":
                _bill(table(data.get("message")).get("usage"), reading)
            case "message_delta":
                reading.begun = True
                reading.finished = reading.finished or bool(delta.get("stop_reason"))
                self._finish(delta.get("stop_reason"))
                _bill(data.get("usage"), reading)
            case "message_stop":
                reading.end()
            case "error":
                reading.fail(data.get("error"))
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                reading.begun = True
                reading.characters += sum(length(delta.get(name)) for name in ("text", "thinking", "partial_json"))
                return self._deltas(data, delta)
        return ()

    def read_whole(self, data: Json) -> Iterator[Delta]:
        self.reading.begun = True
        self.reading.end()
        self._finish(data.get("stop_reason") or "end_turn")
        _bill(data.get("usage"), self.reading)
        return self._blocks(tables(data.get("content")))

    def _deltas(self, data: Json, delta: Json) -> Iterator[Delta]:
        index = data.get("index")
        at = index if isinstance(index, int) else 0
        match data.get("type"):
            case "content_block_start":
                yield from self._begin(at, table(data.get("content_block")))
            case "content_block_delta":
                yield from self._say(delta)
                yield from self._queue.part(at, string(delta.get("partial_json")))
            case "content_block_stop":
                yield from self._queue.end(at)

    def _blocks(self, blocks: list[Json]) -> Iterator[Delta]:
        for at, block in enumerate(blocks):
            yield from self._begin(at, block)
            yield from self._queue.end(at)

    def _begin(self, at: int, block: Json) -> list[Delta]:
        if block.get("type") == "tool_use":
            call_id = string(block.get("id")) or f"call_{self.name}{at}"
            found = self._queue.begin(at, call_id, string(block.get("name")))
            given = table(block.get("input"))
            return found + (self._queue.part(at, dumped(given)) if given else [])
        return self._say(block)

    def _say(self, told: Json) -> list[Delta]:
        said = self._queue.say(TextDelta(string(told.get("text"))))
        return said + self._queue.say(ThoughtDelta(string(told.get("thinking"))))

    def _finish(self, reason: object) -> None:
        if reason:
            self.reason = _REASONS.get(str(reason), Reason.STOP)


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
