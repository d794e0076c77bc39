"""OpenAI's chat completions, as its many imitators speak them too. Usage is in the last chunk, if it was asked for."""

import json
from collections.abc import Iterator

from holdfast.broker.demo.actions import Fail, Say, Think, Use, Wait
from holdfast.broker.demo.wires.base import Answer, Piece, event
from holdfast.broker.demo.wires.openai_errors import failure as _failure


class Chat:
    def failure(self, status: int, message: str, /) -> object:
        return _failure(status, message)

    def whole(self, answer: Answer, /) -> object:
        said = "".join(action.text for action in answer.actions if isinstance(action, Say))
        thought = "".join(action.text for action in answer.actions if isinstance(action, Think))
        calls = [_call(answer, action) for action in answer.actions if isinstance(action, Use)]
        message: dict[str, object] = {"role": "assistant", "content": said or None}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answer)}
        return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def stream(self, answer: Answer, /) -> Iterator[Piece]:
        yield _chunk(answer, {"role": "assistant", "content": ""})
        pause = 0.0
        for action in answer.actions:
            match action:
                case Wait(seconds):
                    pause += seconds
                    continue
                case Say() | Think():
                    key = "content" if isinstance(action, Say) else "reasoning_content"
                    for word in action.words:
                        yield _chunk(answer, {key: word}, after=pause)
                        pause = 0.0
                case Use():
                    yield from _call_chunks(answer, action, pause)
                case Fail(status, message):
                    yield event(_failure(status, message), after=pause)
                    return
            pause = 0.0
        yield _chunk(answer, {}, _reason(answer), after=pause)
        if answer.usage_wanted:
            yield event({**_head(answer, "chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
        yield Piece(b"data: [DONE]\n\n")


def _head(answer: Answer, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _chunk(answer: Answer, delta: object, reason: str | None = None, after: float = 0.0) -> Piece:
    head = _head(answer, "chat.completion.chunk")
    return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}, after=after)


def _call(answer: Answer, use: Use) -> dict[str, object]:
    function = {"name": use.tool, "arguments": json.dumps(use.arguments)}
    return {"id": f"call_{answer.id}", "type": "function", "function": function}


def _call_chunks(answer: Answer, use: Use, pause: float) -> Iterator[Piece]:
    """The name first, then its arguments in two halves: who reads them must put them together."""
    begun = {"index": 0, **_call(answer, use), "function": {"name": use.tool, "arguments": ""}}
    yield _chunk(answer, {"tool_calls": [begun]}, after=pause)
    text = json.dumps(use.arguments)
    for half in (text[: len(text) // 2], text[len(text) // 2 :]):
        yield _chunk(answer, {"tool_calls": [{"index": 0, "function": {"arguments": half}}]})


def _reason(answer: Answer) -> str:
    return "tool_calls" if any(isinstance(action, Use) for action in answer.actions) else "stop"


def _usage(answer: Answer) -> dict[str, object]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
