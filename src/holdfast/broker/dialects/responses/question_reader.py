"""Questions in OpenAI's responses."""

from holdfast.broker.dialects.json import Json, decimal, dumped, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, Lacks
from holdfast.broker.dialects.openai import choice_of, form_of
from holdfast.broker.dialects.question import (
    Image,
    LinkedImage,
    Message,
    Role,
    Talk,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    image_from_url,
)

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


def read(data: Json) -> Talk:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    for wanted in items(data.get("include")):
        if wanted != _ENCRYPTED:
            lacks.note(f"include of {wanted}")
    text = table(data.get("text"))
    lacks.fields(text, {"format", "verbosity"}, "text.")
    parallel, choice, form = data.get("parallel_tool_calls"), data.get("tool_choice"), table(text.get("format"))
    return Talk(
        model=string(data.get("model")),
        messages=_messages(data, lacks),
        tools=[_tool(tool, lacks) for tool in tables(data.get("tools"))],
        choice=choice_of(choice, table(choice), lacks),
        parallel=parallel if isinstance(parallel, bool) else None,
        max_tokens=whole(data.get("max_output_tokens")),
        temperature=decimal(data.get("temperature")),
        top_p=decimal(data.get("top_p")),
        streamed=data.get("stream") is True,
        form=form_of(form.get("type"), form, lacks, where="text.format"),
        lacks=lacks.all,
    )


def _messages(data: Json, lacks: Lacks) -> list[Message]:
    given = data.get("input")
    told = tables([{"role": "user", "content": given}] if isinstance(given, str) else given)
    system = [Text(text) for text in texts(data.get("instructions")) if text]
    found = [Message(Role.SYSTEM, tuple(system))] if system else []
    names: dict[str, str] = {}
    for item in told:
        message = _item(item, names, lacks)
        if message is not None:
            found.append(message)
    return found


def _item(item: Json, names: dict[str, str], lacks: Lacks) -> Message | None:
    kind = string(item.get("type")) or "message"
    if kind == "message":
        role = _ROLES.get(string(item.get("role")), Role.USER)
        return Message(role, _content(item.get("content"), lacks))
    if kind == "reasoning":
        thoughts = [*texts(item.get("summary")), *texts(item.get("content"))]
        return Message(Role.MODEL, tuple(Thought(text) for text in thoughts)) if thoughts else None
    call_id = string(item.get("call_id"))
    if kind.endswith("_output"):
        if kind != "function_call_output":
            lacks.note(f"an item of type {kind}")
        return Message(Role.USER, (ToolResult(call_id, names.get(call_id, ""), _output(item.get("output"), lacks)),))
    if kind != "function_call":
        lacks.note(f"an item of type {kind}")
    if not kind.endswith("_call"):
        return None
    lacks.fields(item, {"type", "id", "call_id", "name", "arguments", "status", "action", "input"}, f"{kind}.")
    arguments = string(item.get("arguments")) or string(item.get("input")) or dumped(item.get("action") or {})
    names[call_id] = string(item.get("name"))
    return Message(Role.MODEL, (ToolCall(call_id, names[call_id], arguments),))


def _content(content: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
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


def _output(output: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
    found = _content(output, lacks)
    return found or (() if output in (None, "", []) else (Text(dumped(output)),))


def _tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "function"
    name = string(tool.get("name")) or kind
    if kind != "function":
        lacks.note(f"the tool {name}, which is OpenAI's own" if name == kind else f"the tool {name} ({kind})")
    strict = tool.get("strict") is True
    return Tool(name, string(tool.get("description")), table(tool.get("parameters")), strict, kind)
