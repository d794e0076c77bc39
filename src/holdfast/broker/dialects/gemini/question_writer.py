"""Questions in Gemini's dialect. Earlier thoughts are left away: only what is signed there is of use."""

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

NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google wants with a call that one of its newer models has not made itself: without, it is refused."""
_OLDER = re.compile(r"(models/)?gemini-[12]\b")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_Data = dict[str, object]


def wants_signatures(model: str) -> bool:
    return not _OLDER.match(model)


def write(talk: Talk, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    system, rest = system_first(talk.messages)
    signed = wants_signatures(target.model)
    data: _Data = {"contents": [one for message in merged(rest) for one in _content(message, signed=signed)]}
    if system:
        data["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    if talk.tools:
        data["tools"] = [{"functionDeclarations": [_tool(tool) for tool in talk.tools]}]
        if talk.choice != Choice():
            data["toolConfig"] = {"functionCallingConfig": _choice(talk.choice)}
    settings = _settings(talk, target)
    if settings:
        data["generationConfig"] = settings
    return data


def _settings(talk: Talk, target: Target) -> _Data:
    said = {
        "maxOutputTokens": target.most(talk),
        "temperature": talk.temperature if talk.temperature != 1 else None,
        "topP": talk.top_p,
        "topK": talk.top_k,
        "stopSequences": list(talk.stop) or None,
    }
    settings: _Data = {name: value for name, value in said.items() if value is not None}
    if talk.form is not None:
        settings["responseMimeType"] = "application/json"
        if talk.form.schema is not None:
            settings["responseJsonSchema"] = talk.form.schema
    return settings


def _content(message: Message, *, signed: bool) -> list[_Data]:
    if message.role is Role.MODEL:
        parts = [told for part in message.parts if (told := _part(part)) is not None]
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None and signed:  # of several at once, only the first has one
            call["thoughtSignature"] = NO_SIGNATURE
        return [{"role": "model", "parts": parts}] if parts else []
    parts = []
    behind: list[_Data] = []
    for part in results_first(message.parts):
        told = _part(part)
        (parts if isinstance(part, ToolResult) else behind).extend([told] if told is not None else [])
        if isinstance(part, ToolResult):  # there is no room for images in these
            behind += [image for one in part.parts if isinstance(one, Image | LinkedImage) and (image := _part(one))]
    return [{"role": "user", "parts": [*parts, *behind]}] if parts or behind else []


def _part(part: Part) -> _Data | None:
    match part:
        case Text(text):
            return {"text": text} if text else None
        case Image(media_type, data):
            return {"inlineData": {"mimeType": media_type, "data": data}}
        case LinkedImage():
            raise CannotCarry("an image by its address")
        case ToolCall(call_id, name, arguments):
            given = object_in(arguments)
            if given is None:
                raise CannotCarry(f"a call of {name} whose arguments are no JSON object")
            return {"functionCall": {"id": fitting_id(call_id), "name": name, "args": given}}
        case ToolResult(call_id, name, parts, is_error):
            if not name:
                raise CannotCarry("the result of a tool that nobody called")
            text = "\n".join(one.text for one in parts if isinstance(one, Text))
            response = {"error" if is_error else "output": text}
            return {"functionResponse": {"id": fitting_id(call_id), "name": name, "response": response}}
    return None


def _tool(tool: Tool) -> _Data:
    """As JSON schema, and not in Google's own form, which knows less of it."""
    told: _Data = {"name": tool.name, "parametersJsonSchema": of_object(tool.schema)}
    return {**told, "description": tool.description} if tool.description else told


def _choice(choice: Choice) -> _Data:
    if choice.how is Choosing.ONE:
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": {Choosing.AUTO: "AUTO", Choosing.NONE: "NONE", Choosing.ANY: "ANY"}[choice.how]}
