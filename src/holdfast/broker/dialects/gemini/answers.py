"""Answers in Gemini's dialect, read and written. Each event has the form of a whole answer.

A call comes whole, in one part, and may have no id; so one is written when all of it is known.
"""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.broker.dialects.answer import (
    AnswerWriter,
    CallBegun,
    CallEnded,
    CallPart,
    CannotTell,
    Delta,
    FinishReason,
    Head,
    TextDelta,
    ThoughtDelta,
)
from holdfast.broker.dialects.gemini.questions import NO_SIGNATURE, wants_signatures
from holdfast.broker.dialects.json import Json, dumped, length, number, object_in, string, table, tables
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading, TokenUsage
from holdfast.broker.dialects.sse import event

_READ_REASONS = {
    "MAX_TOKENS": FinishReason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
        FinishReason.FILTERED,
    ),
}
_ENDS = ("STOP", "FINISH_REASON_UNSPECIFIED", *_READ_REASONS)
_Data = dict[str, object]
_WRITTEN_REASONS = {
    FinishReason.STOP: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.CALLS: "STOP",
    FinishReason.FILTERED: "SAFETY",
}
ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiReader(AnswerReader):
    essential = "candidates"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._calls = 0

    def read(self, data: Json) -> Iterable[Delta]:
        if data.get("error"):
            self.reading.fail(data["error"])
            return ()
        candidate = next(iter(tables(data.get("candidates"))), {})
        parts = tables(table(candidate.get("content")).get("parts"))
        self.reading.begun = self.reading.begun or bool(parts)
        self.reading.characters += sum(length(part.get("text")) for part in parts)
        blocked = bool(table(data.get("promptFeedback")).get("blockReason"))
        if candidate.get("finishReason") or blocked:
            self.reading.begun = True
            self.reading.end()
        _read_usage(data.get("usageMetadata"), self.reading)
        return self._deltas(parts, string(candidate.get("finishReason")), blocked=blocked)

    def read_whole(self, data: Json) -> Iterable[Delta]:
        found = self.read(data)
        self.reading.begun = True
        self.reading.end()
        return self._all(found)

    def _all(self, found: Iterable[Delta]) -> Iterator[Delta]:
        yield from found
        self.reason = self.reason or self._usual()

    def _deltas(self, parts: list[Json], reason: str, *, blocked: bool) -> Iterator[Delta]:
        for part in parts:
            yield from self._part(part)
        if reason and reason not in _ENDS:
            raise CannotTell(f"the model has stopped with {reason}")
        if blocked:
            self.reason = FinishReason.FILTERED
        elif reason:
            self.reason = _READ_REASONS.get(reason, self._usual())

    def _part(self, part: Json) -> list[Delta]:
        if "functionCall" in part:
            call = table(part["functionCall"])
            self._calls += 1
            call_id = string(call.get("id")) or f"call_{self.name}{self._calls}"
            begun = self._queue.begin(self._calls, call_id, string(call.get("name")))
            return begun + self._queue.end(self._calls, dumped(table(call.get("args"))))
        text = string(part.get("text"))
        if not text and (kinds := set(part) - {"text", "thought", "thoughtSignature"}):
            raise CannotTell(f"it has answered with {', '.join(sorted(kinds))}")
        return self._queue.say(ThoughtDelta(text) if part.get("thought") is True else TextDelta(text))

    def _usual(self) -> FinishReason:
        return FinishReason.CALLS if self._queue.any else FinishReason.STOP


def _read_usage(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    reading.input = number(usage.get("promptTokenCount")) + number(usage.get("toolUsePromptTokenCount"))
    reading.output = number(usage.get("candidatesTokenCount")) + number(usage.get("thoughtsTokenCount"))
    reading.cached = number(usage.get("cachedContentTokenCount"))


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

    def end(self, reason: FinishReason, usage: TokenUsage) -> bytes:
        return event(self._chunk([{"text": ""}], reason, usage))

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: FinishReason, usage: TokenUsage) -> Json:
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

    def _chunk(self, parts: list[_Data], reason: FinishReason | None = None, usage: TokenUsage | None = None) -> _Data:
        candidate: _Data = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = _WRITTEN_REASONS[reason]
        known = usage or self._head.usage
        told: _Data = {"promptTokenCount": known.input, "totalTokenCount": known.input + known.output}
        if known.cached:
            told["cachedContentTokenCount"] = known.cached
        if usage is not None:
            told["candidatesTokenCount"] = usage.output
        about = {"modelVersion": self._head.model, "responseId": self._head.id}
        return {"candidates": [candidate], "usageMetadata": told, **about}


def error_body(status: int, message: str, code: str) -> Json:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "holdfast"}
    kind = ERRORS.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": kind, "details": [reason]}}


def error_event(message: str) -> bytes:
    return event(error_body(503, message, "stream_broken"))
