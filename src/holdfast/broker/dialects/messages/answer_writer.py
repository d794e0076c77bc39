"""Answers in Anthropic's messages, block by block.

What was read is told at the beginning, if it is known then, and again with what was written.
"""

from collections.abc import Sequence

from holdfast.broker.dialects.answer import (
    AnswerWriter,
    CallBegun,
    CallEnded,
    CallPart,
    CannotTell,
    Delta,
    Head,
    Reason,
    TextDelta,
    ThoughtDelta,
)
from holdfast.broker.dialects.foreign import FOREIGN
from holdfast.broker.dialects.json import Json, object_in
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reading import Usage
from holdfast.broker.dialects.sse import event

_Data = dict[str, object]
_REASONS = {
    Reason.STOP: "end_turn",
    Reason.LENGTH: "max_tokens",
    Reason.CALLS: "tool_use",
    Reason.FILTERED: "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class MessagesWriter(AnswerWriter):
    def __init__(self, head: Head) -> None:
        self._head = head
        self._index = 0
        self._open = ""
        """The type of the block that is being told."""

    def begin(self) -> bytes:
        usage = {**_read(self._head.usage), "output_tokens": 1}
        start = {**self._message(), "content": [], "stop_reason": None, "usage": usage}
        return _event({"type": "message_start", "message": start})

    def write(self, delta: Delta) -> bytes:
        match delta:
            case TextDelta(text):
                begun = self._begin("text", {"text": ""}) if self._open != "text" else b""
                return begun + self._delta({"type": "text_delta", "text": text})
            case ThoughtDelta(text):
                empty = {"thinking": "", "signature": ""}
                begun = self._begin("thinking", empty) if self._open != "thinking" else b""
                return begun + self._delta({"type": "thinking_delta", "thinking": text})
            case CallBegun(call_id, name):
                return self._begin("tool_use", {"id": fitting_id(call_id), "name": name, "input": {}})
            case CallPart(text):
                return self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEnded():
                return self._end()

    def end(self, reason: Reason, usage: Usage) -> bytes:
        delta = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        told = {**_read(usage), "output_tokens": usage.output}
        last = _event({"type": "message_delta", "delta": delta, "usage": told})
        return self._end() + last + _event({"type": "message_stop"})

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: Reason, usage: Usage) -> Json:
        content = [_block(part) for part in parts]
        told = {**_read(usage), "output_tokens": usage.output}
        return {**self._message(), "content": content, "stop_reason": _REASONS[reason], "usage": told}

    def _begin(self, kind: str, block: Json) -> bytes:
        ended = self._end()
        self._open = kind
        start = {"type": "content_block_start", "index": self._index, "content_block": {"type": kind, **block}}
        return ended + _event(start)

    def _delta(self, delta: _Data) -> bytes:
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _end(self) -> bytes:
        if not self._open:
            return b""
        signed = self._delta({"type": "signature_delta", "signature": FOREIGN}) if self._open == "thinking" else b""
        ended = _event({"type": "content_block_stop", "index": self._index})
        self._open = ""
        self._index += 1
        return signed + ended

    def _message(self) -> _Data:
        head = self._head
        told: _Data = {"id": f"msg_{head.id}", "type": "message", "role": "assistant", "model": head.model}
        return {**told, "stop_sequence": None}


def _block(part: Text | Thought | ToolCall) -> _Data:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thought(text):
            return {"type": "thinking", "thinking": text, "signature": FOREIGN}
        case ToolCall(call_id, name, arguments):
            given = object_in(arguments)
            if given is None:
                raise CannotTell(f"it has called {name} with arguments that are no JSON object")
            return {"type": "tool_use", "id": fitting_id(call_id), "name": name, "input": given}


def _read(usage: Usage) -> _Data:
    """Here what came from the cache, or went there, is not part of the input."""
    return {
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
    }


def _event(data: _Data) -> bytes:
    return event(data, str(data["type"]))


def error_body(status: int, message: str, code: str) -> Json:
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message, "code": code}}


def error_event(message: str) -> bytes:
    return event(error_body(502, message, "stream_broken"), "error")
