"""Answers in OpenAI's responses."""

from collections.abc import Iterable, Iterator

from holdfast.broker.dialects.answer import Delta, Reason, TextDelta, ThoughtDelta
from holdfast.broker.dialects.call_queue import Key
from holdfast.broker.dialects.json import Json, length, number, string, table, tables, texts
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading

_PROLOGUE = frozenset({"response.created", "response.in_progress", "response.queued"})
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


class ResponsesReader(AnswerReader):
    essential = "status"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._told: set[Key] = set()
        """Items of which there was a piece: others tell all of them at their end only."""

    def read(self, data: Json) -> Iterable[Delta]:
        reading, kind, response = self.reading, string(data.get("type")), table(data.get("response"))
        match kind:
            case "error":
                told = {name: value for name, value in data.items() if name != "type"}
                reading.fail(table(data.get("error")) or told, kind)
            case "response.failed":
                reading.fail(response.get("error"), kind)
                reading.end()
                _bill(response.get("usage"), reading)
            case "response.completed" | "response.incomplete":
                return self._ended(response)
            case _ if kind.startswith("response.") and kind not in _PROLOGUE:
                reading.begun = True
                reading.characters += length(data.get("delta"))
                return self._deltas(kind, data)
        return ()

    def read_whole(self, data: Json) -> Iterable[Delta]:
        return self._ended(data, tables(data.get("output")))

    def _ended(self, response: Json, output: Iterable[Json] = ()) -> Iterator[Delta]:
        self.reading.begun = True
        self.reading.end()
        _bill(response.get("usage"), self.reading)
        return self._last(response, output)

    def _last(self, response: Json, output: Iterable[Json]) -> Iterator[Delta]:
        for at, item in enumerate(output):
            yield from self._item(at, item)
        why = table(response.get("incomplete_details")).get("reason")
        if response.get("status") == "incomplete":
            self.reason = Reason.FILTERED if why == "content_filter" else Reason.LENGTH
        else:
            self.reason = Reason.CALLS if self._queue.any else Reason.STOP
        yield from self._queue.end_all()

    def _deltas(self, kind: str, data: Json) -> Iterator[Delta]:
        at = _key(data)
        if kind in _TEXTS:
            self._told.add(at)
            yield from self._queue.say(TextDelta(string(data.get("delta"))))
        if kind in _THOUGHTS:
            self._told.add(at)
            yield from self._queue.say(ThoughtDelta(string(data.get("delta"))))
        match kind:
            case "response.reasoning_summary_part.added" if data.get("summary_index"):
                yield from self._queue.say(ThoughtDelta("\n\n"))
            case "response.output_item.added":
                yield from self._begin(at, table(data.get("item")))
            case "response.function_call_arguments.delta":
                yield from self._queue.part(at, string(data.get("delta")))
            case "response.output_item.done":
                yield from self._item(at, table(data.get("item")))

    def _begin(self, at: Key, item: Json) -> list[Delta]:
        if item.get("type") != "function_call":
            return []
        call_id = string(item.get("call_id")) or f"call_{self.name}{at}"
        return self._queue.begin(at, call_id, string(item.get("name")))

    def _item(self, at: Key, item: Json) -> list[Delta]:
        """A whole one."""
        match item.get("type"):
            case "function_call":
                begun = self._begin(at, item)
                return begun + self._queue.end(at, string(item.get("arguments")))
            case "message" if at not in self._told:
                said = [string(part.get("text")) or string(part.get("refusal")) for part in tables(item.get("content"))]
                return self._queue.say(TextDelta("".join(said)))
            case "reasoning" if at not in self._told:
                thoughts = [*texts(item.get("summary")), *texts(item.get("content"))]
                return self._queue.say(ThoughtDelta("\n\n".join(thoughts)))
        return []


def _key(data: Json) -> Key:
    index = data.get("output_index")
    return index if isinstance(index, int) else string(data.get("item_id"))


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("input_tokens_details"))
    reading.input = number(usage.get("input_tokens"))
    reading.output = number(usage.get("output_tokens"))
    reading.cached = number(details.get("cached_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))
