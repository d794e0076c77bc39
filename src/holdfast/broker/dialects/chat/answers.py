"""Answers in OpenAI's chat completions, read and written. Usage is in the last chunk, if it was asked for."""

from collections.abc import Iterator, Sequence

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
from holdfast.broker.dialects.json import Json, amount, length, number, string, table, tables
from holdfast.broker.dialects.openai import error_body
from holdfast.broker.dialects.question import Text, Thought, ToolCall, fitting_id
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading, TokenUsage
from holdfast.broker.dialects.sse import event

_READ_REASONS = {"length": FinishReason.LENGTH, "content_filter": FinishReason.FILTERED}
_WRITTEN_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CALLS: "tool_calls",
    FinishReason.FILTERED: "content_filter",
}


class ChatReader(AnswerReader):
    essential = "choices"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ids: dict[int, str] = {}
        """Of the last call that was told with this index."""
        self._count = 0

    def read(self, data: Json) -> Iterator[Delta]:
        if data.get("error"):
            self.reading.fail(data["error"])
        choices = tables(data.get("choices"))
        for choice in choices:
            _measure(table(choice.get("delta")), self.reading)
            self.reading.finished = self.reading.finished or bool(choice.get("finish_reason"))
        self.is_only_usage = data.get("choices") == [] and isinstance(data.get("usage"), dict)
        _read_usage(data.get("usage"), self.reading)
        return self._deltas(choices, "delta")

    def read_whole(self, data: Json) -> Iterator[Delta]:
        choices = tables(data.get("choices"))
        for choice in choices:
            _measure(table(choice.get("message")), self.reading)
        self.reading.end()
        _read_usage(data.get("usage"), self.reading)
        return self._deltas(choices, "message", "stop")

    def _deltas(self, choices: list[Json], where: str, otherwise: str = "") -> Iterator[Delta]:
        for choice in choices[:1]:
            yield from self._message(table(choice.get(where)))
            yield from self._finish(choice.get("finish_reason") or otherwise)

    def _message(self, told: Json) -> Iterator[Delta]:
        thought = string(told.get("reasoning_content")) or string(told.get("reasoning"))
        yield from self._queue.say(ThoughtDelta(thought))
        yield from self._queue.say(TextDelta(string(told.get("content")) + string(told.get("refusal"))))
        for position, call in enumerate(tables(told.get("tool_calls"))):
            yield from self._call(call, position)

    def _call(self, call: Json, position: int) -> Iterator[Delta]:
        """Read a piece of a call. Some providers give every call the same index, so ids count more."""
        index = call.get("index")
        at = index if isinstance(index, int) else position
        function = table(call.get("function"))
        call_id = string(call.get("id"))
        if at not in self._ids or (call_id and call_id != self._ids[at]):
            self._count += 1
            self._ids[at] = call_id or f"call_{self.name}{self._count}"
            yield from self._queue.begin(self._ids[at], self._ids[at], string(function.get("name")))
        yield from self._queue.part(self._ids[at], string(function.get("arguments")))

    def _finish(self, reason: object) -> list[Delta]:
        if not reason:
            return []
        if reason == "error":
            raise CannotTell("the model has stopped with an error")
        self.reason = _READ_REASONS.get(str(reason), FinishReason.CALLS if self._queue.any else FinishReason.STOP)
        return self._queue.end_all()


def _measure(told: Json, reading: Reading) -> None:
    said = sum(length(told.get(name)) for name in ("content", "reasoning_content", "reasoning"))
    for call in tables(told.get("tool_calls")):
        said += 1 + length(table(call.get("function")).get("arguments"))
    reading.characters += said
    reading.begun = reading.begun or said > 0


def _read_usage(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    details = table(usage.get("prompt_tokens_details"))
    reading.input = number(usage.get("prompt_tokens"))
    reading.output = number(usage.get("completion_tokens"))
    reading.cached = number(details.get("cached_tokens")) or number(usage.get("prompt_cache_hit_tokens"))
    reading.cache_written = number(details.get("cache_write_tokens"))
    reading.cost_usd = amount(usage.get("cost"))


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
                return self._call(_write_call(ToolCall(call_id, name, "")))
            case CallPart(text):
                return self._call({"function": {"arguments": text}})
            case CallEnded():
                return b""

    def end(self, reason: FinishReason, usage: TokenUsage) -> bytes:
        last = self._chunk({}, _WRITTEN_REASONS[reason])
        if self._head.usage_wanted:
            last += event({**self._named("chat.completion.chunk"), "choices": [], "usage": _write_usage(usage)})
        return last + b"data: [DONE]\n\n"

    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: FinishReason, usage: TokenUsage) -> Json:
        said = "".join(part.text for part in parts if isinstance(part, Text))
        thought = "".join(part.text for part in parts if isinstance(part, Thought))
        calls = [_write_call(part) for part in parts if isinstance(part, ToolCall)]
        message: dict[str, object] = {"role": "assistant", "content": said or None}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _WRITTEN_REASONS[reason]}
        return {**self._named("chat.completion"), "choices": [choice], "usage": _write_usage(usage)}

    def _named(self, kind: str) -> dict[str, object]:
        head = self._head
        return {"id": f"chatcmpl-{head.id}", "object": kind, "created": head.created, "model": head.model}

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({**self._named("chat.completion.chunk"), "choices": [choice]})

    def _call(self, told: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls - 1, **told}]})


def _write_call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": fitting_id(call.id), "type": "function", "function": function}


def _write_usage(usage: TokenUsage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def error_event(message: str) -> bytes:
    return event(error_body(502, message, "stream_broken"))
