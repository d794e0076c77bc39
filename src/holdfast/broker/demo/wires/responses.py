"""OpenAI's responses. Each item of the output is announced, streamed and repeated whole; usage is in the last event."""

import json
from collections.abc import Iterator

from holdfast.broker.demo.actions import Action, Fail, Say, Think, Use, Wait
from holdfast.broker.demo.wires.base import Answer, Piece, event
from holdfast.broker.demo.wires.openai_errors import code_of
from holdfast.broker.demo.wires.openai_errors import failure as _failure

_Data = dict[str, object]


class Responses:
    def failure(self, status: int, message: str, /) -> object:
        return _failure(status, message)

    def whole(self, answer: Answer, /) -> object:
        items = [_item(answer, number, action) for number, action in enumerate(_items(answer))]
        return {**_response(answer, "completed"), "output": items, "usage": _usage(answer)}

    def stream(self, answer: Answer, /) -> Iterator[Piece]:
        for number, (data, after) in enumerate(_events(answer)):
            yield event({**data, "sequence_number": number}, str(data["type"]), after)


def _events(answer: Answer) -> Iterator[tuple[_Data, float]]:
    begun = {**_response(answer, "in_progress"), "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}, 0.0
    yield {"type": "response.in_progress", "response": begun}, 0.0
    done: list[_Data] = []
    pause = 0.0
    for action in _items(answer, waits=True):
        if isinstance(action, Wait):
            pause += action.seconds
            continue
        if isinstance(action, Fail):
            error = {"code": code_of(action.status)[1] or "invalid_prompt", "message": action.message}
            failed = {**_response(answer, "failed"), "output": done, "error": error, "usage": None}
            yield {"type": "response.failed", "response": failed}, pause
            return
        item = _item(answer, len(done), action)
        for data in _item_events(action, item):
            yield {**data, "output_index": len(done)}, pause
            pause = 0.0
        done.append(item)
    last = {**_response(answer, "completed"), "output": done, "usage": _usage(answer)}
    yield {"type": "response.completed", "response": last}, pause


def _item_events(action: Action, item: _Data) -> Iterator[_Data]:
    if isinstance(action, Say):
        yield from _message_events(action, item)
    elif isinstance(action, Think):
        yield from _thought_events(action, item)
    elif item["type"] == "function_call":
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "arguments": ""}}
        text = str(item["arguments"])
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": half}
        yield {"type": "response.function_call_arguments.done", "item_id": item["id"], "arguments": text}
    else:
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress"}}
    yield {"type": "response.output_item.done", "item": item}


def _message_events(say: Say, item: _Data) -> Iterator[_Data]:
    at = {"item_id": item["id"], "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}}
    yield {"type": "response.content_part.added", **at, "part": part}
    for word in say.words:
        yield {"type": "response.output_text.delta", **at, "delta": word}
    yield {"type": "response.output_text.done", **at, "text": say.text}
    yield {"type": "response.content_part.done", **at, "part": {**part, "text": say.text}}


def _thought_events(think: Think, item: _Data) -> Iterator[_Data]:
    at = {"item_id": item["id"], "summary_index": 0}
    yield {"type": "response.output_item.added", "item": {**item, "summary": []}}
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {"type": "summary_text", "text": ""}}
    for word in think.words:
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": word}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": think.text}
    whole = {"type": "summary_text", "text": think.text}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": whole}


def _items(answer: Answer, *, waits: bool = False) -> list[Action]:
    """Lines that were said one after the other are one message."""
    merged: list[Action] = []
    for action in answer.actions:
        last = merged[-1] if merged else None
        if isinstance(action, Say) and isinstance(last, Say):
            merged[-1] = Say(last.text + action.text)
        elif waits or not isinstance(action, Wait | Fail):
            merged.append(action)
    return merged


def _item(answer: Answer, number: int, action: Action) -> _Data:
    name = f"{answer.id}{number}"
    match action:
        case Say(text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            return {
                "id": f"msg_{name}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        case Think(text):
            return {"id": f"rs_{name}", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
        case Use(tool, arguments, kind):
            head: _Data = {"id": f"fc_{name}", "status": "completed", "call_id": f"call_{name}"}
            if kind == "local_shell":
                return {**head, "type": "local_shell_call", "action": {"type": "exec", "env": {}, **arguments}}
            return {**head, "type": "function_call", "name": tool, "arguments": json.dumps(arguments)}
    raise AssertionError(f"{action} is no item")


def _response(answer: Answer, status: str) -> _Data:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.model,
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


def _usage(answer: Answer) -> _Data:
    usage = answer.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }
