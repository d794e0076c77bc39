"""Questions in OpenAI's chat completions. Its imitators know less of them: only what is oldest is used."""

import re

from holdfast.broker.dialects.lacks import Target, check
from holdfast.broker.dialects.openai import settings
from holdfast.broker.dialects.question import (
    Form,
    Image,
    LinkedImage,
    Message,
    Part,
    Role,
    Talk,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    fitting_id,
    image_url,
    merged,
    results_first,
)
from holdfast.broker.dialects.schemas import of_object

_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Data = dict[str, object]


def write(talk: Talk, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    data: _Data = {"model": target.model}
    data["messages"] = [one for message in merged(talk.messages) for one in _message(message)]
    most = target.most(talk)
    if most is not None:
        data["max_completion_tokens" if target.is_openai else "max_tokens"] = most
    data |= settings(talk, [_tool(tool) for tool in talk.tools], {"function": {"name": talk.choice.name}})
    if talk.stop:
        data["stop"] = list(talk.stop)
    if talk.form is not None:
        data["response_format"] = _form(talk.form)
    if talk.streamed and target.asks_for_usage:
        data["stream_options"] = {"include_usage": True}
    return data


def _message(message: Message) -> list[_Data]:
    if message.role is Role.MODEL:
        return _answer(message)
    if message.role is Role.SYSTEM:
        said = [part.text for part in message.parts if isinstance(part, Text)]
        return [{"role": "system", "content": "\n\n".join(said)}] if said else []
    results: list[_Data] = []
    rest: list[Part] = []
    for part in results_first(message.parts):
        if isinstance(part, ToolResult):
            text = "\n".join(one.text for one in part.parts if isinstance(one, Text))
            results.append({"role": "tool", "tool_call_id": fitting_id(part.call_id), "content": text})
            rest += [one for one in part.parts if not isinstance(one, Text)]  # there is no room for images in these
        else:
            rest.append(part)
    content = [_part(part) for part in rest if isinstance(part, Text | Image | LinkedImage)]
    if len(content) == 1 and isinstance(rest[0], Text):
        return [*results, {"role": "user", "content": rest[0].text}]
    return [*results, {"role": "user", "content": content}] if content else results


def _answer(message: Message) -> list[_Data]:
    said = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
    if not said and not calls:
        return []
    return [{"role": "assistant", "content": said or None, **({"tool_calls": calls} if calls else {})}]


def _part(part: Text | Image | LinkedImage) -> _Data:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def _call(call: ToolCall) -> _Data:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": fitting_id(call.id), "type": "function", "function": function}


def _tool(tool: Tool) -> _Data:
    function: _Data = {"name": tool.name, "parameters": of_object(tool.schema)}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _form(form: Form) -> _Data:
    if form.schema is None:
        return {"type": "json_object"}
    told: _Data = {"name": form.name or "answer", "schema": form.schema}
    return {"type": "json_schema", "json_schema": {**told, "strict": form.strict}}
