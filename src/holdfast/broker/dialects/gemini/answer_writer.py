"""Answers in Gemini's dialect: each event has the form of a whole answer. A call is told when all of it is there."""

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
from holdfast.broker.dialects.gemini.question_writer import NO_SIGNATURE, wants_signatures
from holdfast.broker.dialects.json import Json, object_in
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reading import Usage
from holdfast.broker.dialects.sse import event

_Data = dict[str, object]
_REASONS = {Reason.STOP: "STOP", Reason.LENGTH: "MAX_TOKENS", Reason.CALLS: "STOP", Reason.FILTERED: "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiWriter(AnswerWriter):
    def __init__(self, head: Head) -> None:
        self._head = head
        self._open: ToolCall | None = None
        self._signed = not wants_signatures(head.model)

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        match delta:
            case TextDelta(text):
                return event(self._chunk([self._part(Text(text))]))
            case ThoughtDelta(text):
                return event(self._chunk([self._part(Thought(text))]))
            case CallBegun(call_id, name):
                self._open = ToolCall(call_id, name, "")
            case CallPart(text) if self._open is not None:
                self._open = ToolCall(self._open.id, self._open.name, self._open.arguments + text)
            case CallEnded() if self._open is not None:
                call, self._open = self._open, None
                return event(self._chunk([self._part(call)]))
        return b""

    def end(self, reason: Reason, usage: Usage) -> bytes:
        return event(self._chunk([{"text": ""}], reason, usage))

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: Reason, usage: Usage) -> Json:
        return self._chunk([self._part(part) for part in parts], reason, usage)

    def _part(self, part: Text | Thought | ToolCall) -> _Data:
        match part:
            case Text(text):
                return {"text": text}
            case Thought(text):
                return {"text": text, "thought": True}
            case ToolCall(call_id, name, arguments):
                given = object_in(arguments)
                if given is None:
                    raise CannotTell(f"it has called {name} with arguments that are no JSON object")
                call: _Data = {"functionCall": {"id": fitting_id(call_id), "name": name, "args": given}}
                if not self._signed:  # the agent sends it back, and only the first of an answer has one
                    self._signed = True
                    call["thoughtSignature"] = NO_SIGNATURE
                return call

    def _chunk(self, parts: list[_Data], reason: Reason | None = None, usage: Usage | None = None) -> _Data:
        candidate: _Data = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = _REASONS[reason]
        known = usage or self._head.usage
        told: _Data = {"promptTokenCount": known.input, "totalTokenCount": known.input + known.output}
        if known.cached:
            told["cachedContentTokenCount"] = known.cached
        if usage is not None:
            told["candidatesTokenCount"] = usage.output
        head = self._head
        return {
            "candidates": [candidate],
            "usageMetadata": told,
            "modelVersion": head.model,
            "responseId": head.id,
        }


def error_body(status: int, message: str, code: str) -> Json:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "holdfast"}
    kind = _STATUSES.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": kind, "details": [reason]}}


def error_event(message: str) -> bytes:
    return event(error_body(503, message, "stream_broken"))
