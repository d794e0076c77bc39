"""Answers in OpenAI's responses, read and written.

Each item is announced, streamed and repeated whole; usage is in the last event.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.broker.dialects.answer import (
    AnswerWriter,
    CallBegun,
    CallEnded,
    CallPart,
    Delta,
    FinishReason,
    Head,
    TextDelta,
    ThoughtDelta,
)
from holdfast.broker.dialects.call_queue import Key
from holdfast.broker.dialects.foreign import FOREIGN
from holdfast.broker.dialects.json import Json, length, number, string, table, tables, texts
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading, TokenUsage
from holdfast.broker.dialects.sse import event

_PROLOGUE = frozenset({"response.created", "response.in_progress", "response.queued"})
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_Data = dict[str, object]
_EVENTS: Mapping[type, tuple[str, str, str]] = {
    Text: ("content", "response.output_text", "response.content_part"),
    Thought: ("summary", "response.reasoning_summary_text", "response.reasoning_summary_part"),
}
"""Where an item has its text, and the events about the text and about the part that it is in."""
_WHY = {FinishReason.LENGTH: "max_output_tokens", FinishReason.FILTERED: "content_filter"}


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
                _read_usage(response.get("usage"), reading)
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
        _read_usage(response.get("usage"), self.reading)
        return self._last(response, output)

    def _last(self, response: Json, output: Iterable[Json]) -> Iterator[Delta]:
        for at, item in enumerate(output):
            yield from self._item(at, item)
        why = table(response.get("incomplete_details")).get("reason")
        if response.get("status") == "incomplete":
            self.reason = FinishReason.FILTERED if why == "content_filter" else FinishReason.LENGTH
        else:
            self.reason = FinishReason.CALLS if self._queue.any else FinishReason.STOP
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
        """Read an item that comes whole."""
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


def _read_usage(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("input_tokens_details"))
    reading.input = number(usage.get("input_tokens"))
    reading.output = number(usage.get("output_tokens"))
    reading.cached = number(details.get("cached_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))


class ResponsesWriter(AnswerWriter):
    def __init__(self, head: Head) -> None:
        self._head = head
        self._number = 0
        self._done: list[_Data] = []
        self._open: Text | Thought | ToolCall | None = None

    def begin(self) -> bytes:
        begun = {**self._response("in_progress"), "output": [], "usage": None}
        return self._event({"type": "response.created", "response": begun}) + self._event(
            {"type": "response.in_progress", "response": begun}
        )

    def write(self, delta: Delta) -> bytes:
        match delta, self._open:
            case TextDelta(text), Text(before):
                return self._write_text(Text(before + text), text)
            case ThoughtDelta(text), Thought(before):
                return self._write_text(Thought(before + text), text)
            case CallPart(text), ToolCall(call_id, name, before):
                self._open = ToolCall(call_id, name, before + text)
                return self._event({"type": "response.function_call_arguments.delta", **self._at(), "delta": text})
            case TextDelta(), _:
                return self._begin_item(Text("")) + self.write(delta)
            case ThoughtDelta(), _:
                return self._begin_item(Thought("")) + self.write(delta)
            case CallBegun(call_id, name), _:
                return self._begin_item(ToolCall(call_id, name, ""))
            case CallEnded(), ToolCall():
                return self._end_item()
        return b""

    def _write_text(self, part: Text | Thought, text: str) -> bytes:
        self._open = part
        list_name, text_event, _ = _EVENTS[type(part)]
        return self._event({"type": f"{text_event}.delta", **self._at(list_name), "delta": text})

    def end(self, reason: FinishReason, usage: TokenUsage) -> bytes:
        last = self._end_item()
        response = self._ended(self._done, reason, usage)
        kind = "response.incomplete" if reason in _WHY else "response.completed"
        return last + self._event({"type": kind, "response": response})

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: FinishReason, usage: TokenUsage) -> Json:
        return self._ended([self._item(number, part) for number, part in enumerate(parts)], reason, usage)

    # -- items -------------------------------------------------------------------------------------------------------

    def _begin_item(self, part: Text | Thought | ToolCall) -> bytes:
        ended = self._end_item()
        self._open = part
        item = {**self._item(len(self._done), part), "status": "in_progress"}
        added: _Data = {"type": "response.output_item.added", "output_index": len(self._done)}
        if isinstance(part, ToolCall):
            return ended + self._event({**added, "item": item})
        list_name, _, part_event = _EVENTS[type(part)]
        begun = self._event({**added, "item": {**item, list_name: []}})
        return (
            ended
            + begun
            + self._event({"type": f"{part_event}.added", **self._at(list_name), "part": _write_part(part)})
        )

    def _end_item(self) -> bytes:
        part = self._open
        if part is None:
            return b""
        item = self._item(len(self._done), part)
        if isinstance(part, ToolCall):
            kind = "response.function_call_arguments.done"
            ended = self._event({"type": kind, **self._at(), "name": part.name, "arguments": part.arguments})
        else:
            list_name, text_event, part_event = _EVENTS[type(part)]
            at = self._at(list_name)
            ended = self._event({"type": f"{text_event}.done", **at, "text": part.text})
            ended += self._event({"type": f"{part_event}.done", **at, "part": _write_part(part)})
        ended += self._event({"type": "response.output_item.done", "output_index": len(self._done), "item": item})
        self._done.append(item)
        self._open = None
        return ended

    def _at(self, list_name: str = "") -> _Data:
        """Return the fields that say which item an event is about, and which part of it."""
        number = len(self._done)
        assert self._open is not None
        found: _Data = {"output_index": number, "item_id": self._item(number, self._open)["id"]}
        return {**found, f"{list_name}_index": 0} if list_name else found

    def _item(self, number: int, part: Text | Thought | ToolCall) -> _Data:
        name = f"{self._head.id}{number}"
        match part:
            case Text():
                said: _Data = {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant"}
                return {**said, "content": [_write_part(part)]}
            case Thought():
                thought: _Data = {"id": f"rs_{name}", "type": "reasoning", "encrypted_content": FOREIGN}
                return {**thought, "summary": [_write_part(part)]}
            case ToolCall(call_id, tool, arguments):
                call: _Data = {"id": f"fc_{name}", "type": "function_call", "status": "completed"}
                return {**call, "call_id": fitting_id(call_id), "name": tool, "arguments": arguments}

    # -- the response ------------------------------------------------------------------------------------------------

    def _event(self, data: _Data) -> bytes:
        self._number += 1
        return event({**data, "sequence_number": self._number - 1}, str(data["type"]))

    def _ended(self, output: list[_Data], reason: FinishReason, usage: TokenUsage) -> _Data:
        why = _WHY.get(reason)
        response = self._response("completed" if why is None else "incomplete")
        details = None if why is None else {"reason": why}
        return {**response, "incomplete_details": details, "output": output, "usage": _write_usage(usage)}

    def _response(self, status: str) -> _Data:
        return {
            "id": f"resp_{self._head.id}",
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "model": self._head.model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        }


def _write_part(part: Text | Thought) -> _Data:
    if isinstance(part, Thought):
        return {"type": "summary_text", "text": part.text}
    return {"type": "output_text", "text": part.text, "annotations": []}


def _write_usage(usage: TokenUsage) -> _Data:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def error_event(message: str) -> bytes:
    error = {"code": "server_error", "message": message}
    failed = {"status": "failed", "error": error, "output": []}
    # Nobody counts; but OpenCode skips an event without a number, and takes the half for a whole answer.
    number = {"sequence_number": 0}
    return event({"type": "error", **error, "param": None, **number}, "error") + event(
        {"type": "response.failed", "response": failed, **number}, "response.failed"
    )
