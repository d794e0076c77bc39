"""Questions in OpenAI's responses. Nothing is kept there: the agent has the conversation."""

import re

from holdfast.broker.dialects.lacks import CannotCarry, Target, check
from holdfast.broker.dialects.openai import settings
from holdfast.broker.dialects.question import (
    Form,
    Image,
    LinkedImage,
    Message,
    Role,
    Talk,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    fitting_id,
    image_url,
)
from holdfast.broker.dialects.schemas import of_object

_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LEAST_TOKENS = 16
_Data = dict[str, object]


def write(talk: Talk, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    if talk.stop:
        raise CannotCarry("words at which to stop")
    data: _Data = {"model": target.model, "store": False}
    data["input"] = [item for message in talk.messages for item in _items(message)]
    most = target.most(talk)
    if most is not None:
        if most < _LEAST_TOKENS:
            raise CannotCarry(f"a limit of less than {_LEAST_TOKENS} tokens")
        data["max_output_tokens"] = most
    data |= settings(talk, [_tool(tool) for tool in talk.tools], {"name": talk.choice.name})
    if talk.form is not None:
        data["text"] = {"format": _form(talk.form)}
    return data


def _items(message: Message) -> list[_Data]:
    """Messages, calls and results are items of their own, in their order."""
    role = {Role.SYSTEM: "system", Role.USER: "user", Role.MODEL: "assistant"}[message.role]
    found: list[_Data] = []
    said: list[_Data] = []

    def close() -> None:
        if said:
            found.append({"type": "message", "role": role, "content": list(said)})
            said.clear()

    for part in message.parts:
        match part:
            case Text() | Image() | LinkedImage():
                said.append(_part(part, message.role))
            case ToolCall(call_id, name, arguments):
                close()
                call = {"type": "function_call", "call_id": fitting_id(call_id), "name": name}
                found.append({**call, "arguments": arguments or "{}"})
            case ToolResult(call_id, _, parts):
                close()
                output = [_part(one, Role.USER) for one in parts]
                only = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else None
                told = only if only is not None else (output or "")
                found.append({"type": "function_call_output", "call_id": fitting_id(call_id), "output": told})
    close()
    return found


def _part(part: Text | Image | LinkedImage, role: Role) -> _Data:
    if isinstance(part, Text):
        return {"type": "output_text" if role is Role.MODEL else "input_text", "text": part.text}
    return {"type": "input_image", "detail": "auto", "image_url": image_url(part)}


def _tool(tool: Tool) -> _Data:
    """``strict`` is said in any case: it is not off by itself here."""
    told: _Data = {"type": "function", "name": tool.name, "parameters": of_object(tool.schema), "strict": tool.strict}
    return {**told, "description": tool.description} if tool.description else told


def _form(form: Form) -> _Data:
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": form.name or "answer", "schema": form.schema, "strict": form.strict}
