"""Questions in OpenAI's responses, read and written. OpenAI stores nothing: the agent has the conversation."""

import re

from holdfast.broker.dialects.json import Json, decimal, dumped, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, CannotCarry, Lacks, Target, check
from holdfast.broker.dialects.openai import choice_of, form_of, settings
from holdfast.broker.dialects.question import (
    CommonQuestion,
    Form,
    Image,
    LinkedImage,
    Message,
    Role,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    fitting_id,
    image_from_url,
    image_url,
)
from holdfast.broker.dialects.schemas import of_object

_CARRIED = {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens"),
    *("temperature", "top_p", "stream", "text", "include", "background"),
}
_HINTS = HINTS | {
    *("client_metadata", "context_management", "prompt_cache_key", "prompt_cache_retention", "reasoning"),
    *("safety_identifier", "store", "stream_options", "truncation"),
}
_ENCRYPTED = "reasoning.encrypted_content"
_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.MODEL}
_TEXTS = (None, "text", "input_text", "output_text", "refusal", "summary_text")
_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LEAST_TOKENS = 16
_Data = dict[str, object]


def read(data: Json) -> CommonQuestion:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    for wanted in items(data.get("include")):
        if wanted != _ENCRYPTED:
            lacks.note(f"include of {wanted}")
    text = table(data.get("text"))
    lacks.fields(text, {"format", "verbosity"}, "text.")
    parallel, choice, form = data.get("parallel_tool_calls"), data.get("tool_choice"), table(text.get("format"))
    return CommonQuestion(
        model=string(data.get("model")),
        messages=_read_messages(data, lacks),
        tools=[_read_tool(tool, lacks) for tool in tables(data.get("tools"))],
        choice=choice_of(choice, table(choice), lacks),
        parallel=parallel if isinstance(parallel, bool) else None,
        max_tokens=whole(data.get("max_output_tokens")),
        temperature=decimal(data.get("temperature")),
        top_p=decimal(data.get("top_p")),
        streamed=data.get("stream") is True,
        form=form_of(form.get("type"), form, lacks, where="text.format"),
        lacks=lacks.all,
    )


def _read_messages(data: Json, lacks: Lacks) -> list[Message]:
    given = data.get("input")
    told = tables([{"role": "user", "content": given}] if isinstance(given, str) else given)
    system = [Text(text) for text in texts(data.get("instructions")) if text]
    found = [Message(Role.SYSTEM, tuple(system))] if system else []
    names: dict[str, str] = {}
    for item in told:
        message = _read_item(item, names, lacks)
        if message is not None:
            found.append(message)
    return found


def _read_item(item: Json, names: dict[str, str], lacks: Lacks) -> Message | None:
    kind = string(item.get("type")) or "message"
    if kind == "message":
        role = _ROLES.get(string(item.get("role")), Role.USER)
        return Message(role, _read_content(item.get("content"), lacks))
    if kind == "reasoning":
        thoughts = [*texts(item.get("summary")), *texts(item.get("content"))]
        return Message(Role.MODEL, tuple(Thought(text) for text in thoughts)) if thoughts else None
    call_id = string(item.get("call_id"))
    if kind.endswith("_output"):
        if kind != "function_call_output":
            lacks.note(f"an item of type {kind}")
        return Message(
            Role.USER, (ToolResult(call_id, names.get(call_id, ""), _read_output(item.get("output"), lacks)),)
        )
    if kind != "function_call":
        lacks.note(f"an item of type {kind}")
    if not kind.endswith("_call"):
        return None
    lacks.fields(item, {"type", "id", "call_id", "name", "arguments", "status", "action", "input"}, f"{kind}.")
    arguments = string(item.get("arguments")) or string(item.get("input")) or dumped(item.get("action") or {})
    names[call_id] = string(item.get("name"))
    return Message(Role.MODEL, (ToolCall(call_id, names[call_id], arguments),))


def _read_content(content: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    found: list[Text | Image | LinkedImage] = []
    for part in items(content):
        kind = table(part).get("type")
        image = image_from_url(string(table(part).get("image_url"))) if kind == "input_image" else None
        if image is not None:
            found.append(image)
        elif kind in _TEXTS:
            found += [Text(text) for text in texts([part]) or texts([table(part).get("refusal")])]
        else:
            lacks.note(f"content of type {kind}")
    return tuple(found)


def _read_output(output: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
    found = _read_content(output, lacks)
    return found or (() if output in (None, "", []) else (Text(dumped(output)),))


def _read_tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "function"
    name = string(tool.get("name")) or kind
    if kind != "function":
        lacks.note(f"the tool {name}, which is OpenAI's own" if name == kind else f"the tool {name} ({kind})")
    strict = tool.get("strict") is True
    return Tool(name, string(tool.get("description")), table(tool.get("parameters")), strict, kind)


def write(talk: CommonQuestion, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    if talk.stop:
        raise CannotCarry("words at which to stop")
    data: _Data = {"model": target.model, "store": False}
    data["input"] = [item for message in talk.messages for item in _write_items(message)]
    most = target.most(talk)
    if most is not None:
        if most < _LEAST_TOKENS:
            raise CannotCarry(f"a limit of less than {_LEAST_TOKENS} tokens")
        data["max_output_tokens"] = most
    data |= settings(talk, [_write_tool(tool) for tool in talk.tools], {"name": talk.choice.name})
    if talk.form is not None:
        data["text"] = {"format": _write_form(talk.form)}
    return data


def _write_items(message: Message) -> list[_Data]:
    """Write a message as items: its text, its calls and its results are items of their own, in their order."""
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
                said.append(_write_part(part, message.role))
            case ToolCall(call_id, name, arguments):
                close()
                call = {"type": "function_call", "call_id": fitting_id(call_id), "name": name}
                found.append({**call, "arguments": arguments or "{}"})
            case ToolResult(call_id, _, parts):
                close()
                output = [_write_part(one, Role.USER) for one in parts]
                only = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else None
                told = only if only is not None else (output or "")
                found.append({"type": "function_call_output", "call_id": fitting_id(call_id), "output": told})
    close()
    return found


def _write_part(part: Text | Image | LinkedImage, role: Role) -> _Data:
    if isinstance(part, Text):
        return {"type": "output_text" if role is Role.MODEL else "input_text", "text": part.text}
    return {"type": "input_image", "detail": "auto", "image_url": image_url(part)}


def _write_tool(tool: Tool) -> _Data:
    """Write a tool. ``strict`` is always written, because it is not off by default here."""
    told: _Data = {"type": "function", "name": tool.name, "parameters": of_object(tool.schema), "strict": tool.strict}
    return {**told, "description": tool.description} if tool.description else told


def _write_form(form: Form) -> _Data:
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": form.name or "answer", "schema": form.schema, "strict": form.strict}
