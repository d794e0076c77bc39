"""Questions in Anthropic's messages. Earlier thoughts are left away: without a signature of theirs they are refused."""

import re

from holdfast.broker.dialects.json import object_in
from holdfast.broker.dialects.lacks import CannotCarry, Target, check
from holdfast.broker.dialects.question import (
    Choice,
    Choosing,
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
    merged,
    results_first,
    system_first,
)
from holdfast.broker.dialects.schemas import of_object

_NAMES = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HOTTEST = 1.0
_Data = dict[str, object]


def write(talk: Talk, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    system, rest = system_first(talk.messages)
    most = target.most(talk) or target.output_tokens  # it must be said here
    data: _Data = {"model": target.model, "max_tokens": most}
    if system:
        data["system"] = [{"type": "text", "text": text} for text in system if text.strip()]
    data["messages"] = [one for message in merged(rest) for one in _message(message)]
    if talk.temperature is not None and talk.temperature != 1:
        if talk.temperature > _HOTTEST:
            raise CannotCarry(f"a temperature of {talk.temperature:g}")
        data["temperature"] = talk.temperature
    if talk.top_p is not None and talk.top_p != 1:
        data["top_p"] = talk.top_p
    if talk.top_k is not None:
        data["top_k"] = talk.top_k
    if talk.stop:
        data["stop_sequences"] = list(talk.stop)
    if talk.tools:
        data["tools"] = [_tool(tool) for tool in talk.tools]
        if talk.choice != Choice() or talk.parallel is False:
            data["tool_choice"] = _choice(talk)
    if talk.form is not None:
        if talk.form.schema is None:
            raise CannotCarry("JSON without a schema")
        data["output_config"] = {"format": {"type": "json_schema", "schema": talk.form.schema}}
    if talk.streamed:
        data["stream"] = True
    return data


def _message(message: Message) -> list[_Data]:
    parts = results_first(message.parts) if message.role is Role.USER else message.parts
    content = [block for part in parts if (block := _block(part)) is not None]
    role = "assistant" if message.role is Role.MODEL else "user"
    return [{"role": role, "content": content}] if content else []


def _block(part: Part) -> _Data | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None  # empty ones are refused
        case Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case LinkedImage(url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case ToolCall(call_id, name, arguments):
            given = object_in(arguments)
            if given is None:
                raise CannotCarry(f"a call of {name} whose arguments are no JSON object")
            return {"type": "tool_use", "id": fitting_id(call_id), "name": name, "input": given}
        case ToolResult(call_id, _, parts, is_error):
            content = [block for one in parts if (block := _block(one)) is not None]
            told: _Data = {"type": "tool_result", "tool_use_id": fitting_id(call_id), "content": content}
            return {**told, "is_error": True} if is_error else told
    return None


def _tool(tool: Tool) -> _Data:
    told: _Data = {"name": tool.name, "input_schema": of_object(tool.schema)}
    return {**told, "description": tool.description} if tool.description else told


def _choice(talk: Talk) -> _Data:
    words = {Choosing.AUTO: "auto", Choosing.NONE: "none", Choosing.ANY: "any", Choosing.ONE: "tool"}
    told: _Data = {"type": words[talk.choice.how]}
    if talk.choice.how is Choosing.ONE:
        told["name"] = talk.choice.name
    if talk.parallel is False and talk.choice.how is not Choosing.NONE:
        told["disable_parallel_tool_use"] = True
    return told
