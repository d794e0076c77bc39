"""Answers in OpenAI's chat completions. Usage is in the last chunk, if it was asked for."""

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
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.openai import error_body
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reading import Usage
from holdfast.broker.dialects.sse import event

_REASONS = {
    Reason.STOP: "stop",
    Reason.LENGTH: "length",
    Reason.CALLS: "tool_calls",
    Reason.FILTERED: "content_filter",
}


class ChatWriter(AnswerWriter):
    def __init__(self, head: Head) -> None:
        self._head = head
        self._calls = 0

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def write(self, delta: Delta) -> bytes:
        match delta:
            case TextDelta(text):
                return self._chunk({"content": text})
            case ThoughtDelta(text):
                return self._chunk({"reasoning_content": text})
            case CallBegun(call_id, name):
                self._calls += 1
                function = {"name": name, "arguments": ""}
                return self._call({"id": fitting_id(call_id), "type": "function", "function": function})
            case CallPart(text):
                return self._call({"function": {"arguments": text}})
            case CallEnded():
                return b""

    def end(self, reason: Reason, usage: Usage) -> bytes:
        last = self._chunk({}, _REASONS[reason])
        if self._head.usage_wanted:
            last += event({**self._named("chat.completion.chunk"), "choices": [], "usage": _told(usage)})
        return last + b"data: [DONE]\n\n"

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: Reason, usage: Usage) -> Json:
        said = "".join(part.text for part in parts if isinstance(part, Text))
        thought = "".join(part.text for part in parts if isinstance(part, Thought))
        calls = [
            {
                "id": fitting_id(part.id),
                "type": "function",
                "function": {"name": part.name, "arguments": part.arguments},
            }
            for part in parts
            if isinstance(part, ToolCall)
        ]
        message: dict[str, object] = {"role": "assistant", "content": said or None}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _REASONS[reason]}
        return {**self._named("chat.completion"), "choices": [choice], "usage": _told(usage)}

    def _named(self, kind: str) -> dict[str, object]:
        head = self._head
        return {"id": f"chatcmpl-{head.id}", "object": kind, "created": head.created, "model": head.model}

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({**self._named("chat.completion.chunk"), "choices": [choice]})

    def _call(self, told: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls - 1, **told}]})


def _told(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def error_event(message: str) -> bytes:
    return event(error_body(502, message, "stream_broken"))
