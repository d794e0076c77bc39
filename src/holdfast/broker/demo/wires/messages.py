"""Anthropic's messages. What was read is told in ``message_start``, what was written in ``message_delta``."""

import json
from collections.abc import Iterator

from holdfast.broker.demo.actions import Action, Fail, Say, Think, Use, Wait
from holdfast.broker.demo.wires.base import Answer, Piece, event

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_Data = dict[str, object]


class Messages:
    def failure(self, status: int, message: str, /) -> object:
        kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_demo"}

    def whole(self, answer: Answer, /) -> object:
        content = [_block(answer, number, action) for number, action in enumerate(_blocks(answer))]
        usage = {**_read(answer), "output_tokens": answer.usage.output}
        return {**_head(answer), "content": content, "stop_reason": _reason(answer), "usage": usage}

    def stream(self, answer: Answer, /) -> Iterator[Piece]:
        start = {**_head(answer), "content": [], "stop_reason": None, "usage": {**_read(answer), "output_tokens": 1}}
        yield _event({"type": "message_start", "message": start})
        index, pause = 0, 0.0
        for action in answer.actions:
            if isinstance(action, Wait):
                pause += action.seconds
                continue
            if isinstance(action, Fail):
                yield event(self.failure(action.status, action.message), "error", pause)
                return
            for data in _block_events(answer, index, action):
                yield _event({**data, "index": index}, pause)
                pause = 0.0
            index += 1
        delta = {"stop_reason": _reason(answer), "stop_sequence": None}
        written = {"output_tokens": answer.usage.output}
        yield _event({"type": "message_delta", "delta": delta, "usage": written}, pause)
        yield _event({"type": "message_stop"})


def _block_events(answer: Answer, index: int, action: Action) -> Iterator[_Data]:
    block = _block(answer, index, action)
    match action:
        case Say():
            empty, deltas = {"text": ""}, [{"type": "text_delta", "text": word} for word in action.words]
        case Think():
            empty = {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": word} for word in action.words]
            deltas.append({"type": "signature_delta", "signature": str(block["signature"])})
        case Use(_, arguments):
            text = json.dumps(arguments)
            halves = ("", text[: len(text) // 2], text[len(text) // 2 :])
            empty, deltas = {}, [{"type": "input_json_delta", "partial_json": half} for half in halves]
        case _:
            raise AssertionError(f"{action} is no block")
    begun = {**block, **empty, **({"input": {}} if isinstance(action, Use) else {})}
    yield {"type": "content_block_start", "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def _blocks(answer: Answer) -> list[Action]:
    return [action for action in answer.actions if not isinstance(action, Wait | Fail)]


def _block(answer: Answer, index: int, action: Action) -> _Data:
    match action:
        case Say(text):
            return {"type": "text", "text": text}
        case Think(text):
            return {"type": "thinking", "thinking": text, "signature": "ZGVtbw=="}
        case Use(tool, arguments):
            return {"type": "tool_use", "id": f"toolu_{answer.id}{index}", "name": tool, "input": arguments}
    raise AssertionError(f"{action} is no block")


def _head(answer: Answer) -> _Data:
    head: _Data = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model}
    return {**head, "stop_sequence": None}


def _read(answer: Answer) -> _Data:
    """Here what came from the cache is not part of the input."""
    usage = answer.usage
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
    }


def _reason(answer: Answer) -> str:
    return "tool_use" if any(isinstance(action, Use) for action in answer.actions) else "end_turn"


def _event(data: _Data, after: float = 0.0) -> Piece:
    return event(data, str(data["type"]), after)
