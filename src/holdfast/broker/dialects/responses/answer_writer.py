"""Answers in OpenAI's responses: each item is announced, streamed and repeated whole; usage is in the last event."""

from collections.abc import Sequence

from holdfast.broker.dialects.answer import (
    AnswerWriter,
    CallBegun,
    CallEnded,
    CallPart,
    Delta,
    Head,
    Reason,
    TextDelta,
    ThoughtDelta,
)
from holdfast.broker.dialects.foreign import FOREIGN
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reading import Usage
from holdfast.broker.dialects.sse import event

_Data = dict[str, object]
_WHY = {Reason.LENGTH: "max_output_tokens", Reason.FILTERED: "content_filter"}


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
                self._open = Text(before + text)
                return self._event({"type": "response.output_text.delta", **self._at("content"), "delta": text})
            case ThoughtDelta(text), Thought(before):
                self._open = Thought(before + text)
                kind = "response.reasoning_summary_text.delta"
                return self._event({"type": kind, **self._at("summary"), "delta": text})
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

    def end(self, reason: Reason, usage: Usage) -> bytes:
        last = self._end_item()
        response = self._ended(self._done, reason, usage)
        kind = "response.incomplete" if reason in _WHY else "response.completed"
        return last + self._event({"type": kind, "response": response})

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: Reason, usage: Usage) -> Json:
        return self._ended([self._item(number, part) for number, part in enumerate(parts)], reason, usage)

    # -- items -------------------------------------------------------------------------------------------------------

    def _begin_item(self, part: Text | Thought | ToolCall) -> bytes:
        ended = self._end_item()
        self._open = part
        item = {**self._item(len(self._done), part), "status": "in_progress"}
        added: _Data = {"type": "response.output_item.added", "output_index": len(self._done)}
        match part:
            case Text():
                empty = {"type": "output_text", "text": "", "annotations": []}
                begun = self._event({**added, "item": {**item, "content": []}})
                told = {"type": "response.content_part.added", **self._at("content"), "part": empty}
                return ended + begun + self._event(told)
            case Thought():
                begun = self._event({**added, "item": {**item, "summary": []}})
                kind = "response.reasoning_summary_part.added"
                told = {"type": kind, **self._at("summary"), "part": {"type": "summary_text", "text": ""}}
                return ended + begun + self._event(told)
            case ToolCall():
                return ended + self._event({**added, "item": item})

    def _end_item(self) -> bytes:
        part = self._open
        if part is None:
            return b""
        item = self._item(len(self._done), part)
        match part:
            case Text(text):
                at = self._at("content")
                whole: _Data = {"type": "output_text", "text": text, "annotations": []}
                ended = self._event({"type": "response.output_text.done", **at, "text": text})
                ended += self._event({"type": "response.content_part.done", **at, "part": whole})
            case Thought(text):
                at = self._at("summary")
                whole = {"type": "summary_text", "text": text}
                ended = self._event({"type": "response.reasoning_summary_text.done", **at, "text": text})
                ended += self._event({"type": "response.reasoning_summary_part.done", **at, "part": whole})
            case ToolCall(_, name, arguments):
                kind = "response.function_call_arguments.done"
                ended = self._event({"type": kind, **self._at(), "name": name, "arguments": arguments})
        ended += self._event({"type": "response.output_item.done", "output_index": len(self._done), "item": item})
        self._done.append(item)
        self._open = None
        return ended

    def _at(self, list_name: str = "") -> _Data:
        """Which item it is about, and what of it."""
        number = len(self._done)
        assert self._open is not None
        found: _Data = {"output_index": number, "item_id": self._item(number, self._open)["id"]}
        return {**found, f"{list_name}_index": 0} if list_name else found

    def _item(self, number: int, part: Text | Thought | ToolCall) -> _Data:
        name = f"{self._head.id}{number}"
        match part:
            case Text(text):
                content = [{"type": "output_text", "text": text, "annotations": []}]
                said: _Data = {"id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant"}
                return {**said, "content": content}
            case Thought(text):
                thought: _Data = {"id": f"rs_{name}", "type": "reasoning", "encrypted_content": FOREIGN}
                return {**thought, "summary": [{"type": "summary_text", "text": text}]}
            case ToolCall(call_id, tool, arguments):
                call: _Data = {"id": f"fc_{name}", "type": "function_call", "status": "completed"}
                return {**call, "call_id": fitting_id(call_id), "name": tool, "arguments": arguments}

    # -- the response ------------------------------------------------------------------------------------------------

    def _event(self, data: _Data) -> bytes:
        self._number += 1
        return event({**data, "sequence_number": self._number - 1}, str(data["type"]))

    def _ended(self, output: list[_Data], reason: Reason, usage: Usage) -> _Data:
        why = _WHY.get(reason)
        response = self._response("completed" if why is None else "incomplete")
        details = None if why is None else {"reason": why}
        return {**response, "incomplete_details": details, "output": output, "usage": _told(usage)}

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


def _told(usage: Usage) -> _Data:
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
