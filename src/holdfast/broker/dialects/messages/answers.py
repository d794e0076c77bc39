"""Answers in Anthropic's messages, read and written, block by block.

The input tokens are written at the beginning, if they are known then, and again at the end with the output tokens.
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
from holdfast.broker.dialects.foreign import FOREIGN
from holdfast.broker.dialects.json import Json, dumped, length, number, object_in, string, table, tables
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading, TokenUsage
from holdfast.broker.dialects.sse import event

_READ_REASONS = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.FILTERED,
    "tool_use": FinishReason.CALLS,
}
_Data = dict[str, object]
_WRITTEN_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.CALLS: "tool_use",
    FinishReason.FILTERED: "refusal",
}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class MessagesReader(AnswerReader):
    essential = "role"

    def read(self, data: Json) -> Iterable[Delta]:
        reading, delta = self.reading, table(data.get("delta"))
        match data.get("type"):
            case "message_start":
                _read_usage(table(data.get("message")).get("usage"), reading)
            case "message_delta":
                reading.begun = True
                reading.finished = reading.finished or bool(delta.get("stop_reason"))
                self._finish(delta.get("stop_reason"))
                _read_usage(data.get("usage"), reading)
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
        _read_usage(data.get("usage"), self.reading)
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
            self.reason = _READ_REASONS.get(str(reason), FinishReason.STOP)


def _read_usage(usage: object, reading: Reading) -> None:
    """Read usage: input comes at the beginning, output at the end. What is not repeated stays as it was."""
    if not isinstance(usage, dict):
        return
    if "input_tokens" in usage:
        cached, written = number(usage.get("cache_read_input_tokens")), number(usage.get("cache_creation_input_tokens"))
        total = number(usage.get("input_tokens")) + cached + written
        if total >= (reading.input or 0):
            reading.input, reading.cached, reading.cache_written = total, cached, written
    if "output_tokens" in usage:
        reading.output = number(usage.get("output_tokens"))


class MessagesWriter(AnswerWriter):
    def __init__(self, head: Head) -> None:
        self._head = head
        self._index = 0
        self._open = ""
        """The type of the block that is being told."""

    def begin(self) -> bytes:
        usage = {**_write_input(self._head.usage), "output_tokens": 1}
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

    def end(self, reason: FinishReason, usage: TokenUsage) -> bytes:
        delta = {"stop_reason": _WRITTEN_REASONS[reason], "stop_sequence": None}
        told = {**_write_input(usage), "output_tokens": usage.output}
        last = _event({"type": "message_delta", "delta": delta, "usage": told})
        return self._end() + last + _event({"type": "message_stop"})

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: FinishReason, usage: TokenUsage) -> Json:
        content = [_write_block(part) for part in parts]
        told = {**_write_input(usage), "output_tokens": usage.output}
        return {**self._message(), "content": content, "stop_reason": _WRITTEN_REASONS[reason], "usage": told}

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


def _write_block(part: Text | Thought | ToolCall) -> _Data:
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


def _write_input(usage: TokenUsage) -> _Data:
    """Write the input tokens. In this dialect they exclude what came from the cache, or went into it."""
    return {
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
    }


def _event(data: _Data) -> bytes:
    return event(data, str(data["type"]))


def error_body(status: int, message: str, code: str) -> Json:
    return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message, "code": code}}


def error_event(message: str) -> bytes:
    return event(error_body(502, message, "stream_broken"), "error")
