"""Questions in Anthropic's messages."""

from holdfast.broker.dialects.json import Json, decimal, dumped, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, Lacks
from holdfast.broker.dialects.question import (
    Choice,
    Choosing,
    Form,
    Image,
    LinkedImage,
    Message,
    Part,
    Role,
    Talk,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
)

_CARRIED = {
    *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k"),
    *("stop_sequences", "stream", "output_config", "output_format"),
}
_TOOL = {
    *("type", "name", "description", "input_schema", "strict", "cache_control", "defer_loading"),
    *("eager_input_streaming", "input_examples"),
}
_HINTS = HINTS | {"cache_control", "context_management", "diagnostics", "speed", "thinking", "user_profile_id"}
_FOUND = "tool_reference"
_ROLES = {"assistant": Role.MODEL, "system": Role.SYSTEM}


def read(data: Json) -> Talk:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    config = table(data.get("output_config"))
    lacks.fields(config, {"format", "effort"}, "output_config.")
    choice = table(data.get("tool_choice"))
    system = tuple(Text(text) for text in texts(data.get("system")) if text)
    names: dict[str, str] = {}
    messages = [_message(message, names, lacks) for message in tables(data.get("messages"))]
    return Talk(
        model=string(data.get("model")),
        messages=[Message(Role.SYSTEM, system), *messages] if system else messages,
        tools=[_tool(tool, lacks) for tool in tables(data.get("tools")) if _is_seen(tool, data)],
        choice=_choice(choice, lacks),
        parallel=False if choice.get("disable_parallel_tool_use") is True else None,
        max_tokens=whole(data.get("max_tokens")),
        temperature=decimal(data.get("temperature")),
        top_p=decimal(data.get("top_p")),
        top_k=whole(data.get("top_k")),
        stop=tuple(string(one) for one in items(data.get("stop_sequences"))),
        streamed=data.get("stream") is True,
        form=_form(table(config.get("format")) or table(data.get("output_format"))),
        lacks=lacks.all,
    )


def _message(message: Json, names: dict[str, str], lacks: Lacks) -> Message:
    role = _ROLES.get(string(message.get("role")), Role.USER)
    content = message.get("content")
    if isinstance(content, str):
        return Message(role, (Text(content),) if content else ())
    parts: list[Part] = []
    for block in tables(content):
        match block.get("type"):
            case "thinking":
                parts.append(Thought(string(block.get("thinking"))))
            case "redacted_thinking":
                pass  # nobody else can read it
            case "tool_use":
                call = ToolCall(string(block.get("id")), string(block.get("name")), dumped(table(block.get("input"))))
                names[call.id] = call.name
                parts.append(call)
            case "tool_result":
                call_id = string(block.get("tool_use_id"))
                told = _result(block.get("content"), lacks)
                parts.append(ToolResult(call_id, names.get(call_id, ""), told, block.get("is_error") is True))
            case _:
                parts += _said(block, lacks)
    return Message(role, tuple(parts))


def _result(content: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(part for block in tables(content) for part in _said(block, lacks))


def _said(block: Json, lacks: Lacks) -> list[Text | Image | LinkedImage]:
    kind = block.get("type")
    if kind == "text":
        lacks.fields(block, {"type", "text", "cache_control"}, "text.")
        return [Text(text) for text in texts([block])]
    if kind == _FOUND:
        return [Text(f"The tool {string(block.get('tool_name'))} can be used now.")]
    source = table(block.get("source"))
    if kind == "image" and source.get("type") == "base64":
        return [Image(string(source.get("media_type")), string(source.get("data")))]
    if kind == "image" and source.get("type") == "url":
        return [LinkedImage(string(source.get("url")))]
    lacks.note(f"content of type {kind}" + (f" by {source.get('type')}" if source else ""))
    return []


def _is_seen(tool: Json, data: Json) -> bool:
    """Some tools are shown to the model only when another one has found them."""
    if tool.get("defer_loading") is not True:
        return True
    results = [
        table(part)
        for message in tables(data.get("messages"))
        for block in tables(message.get("content"))
        if block.get("type") == "tool_result"
        for part in items(block.get("content"))
    ]
    return any(part.get("type") == _FOUND and part.get("tool_name") == tool.get("name") for part in results)


def _tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "custom"
    name = string(tool.get("name")) or kind
    if kind != "custom":
        lacks.note(f"the tool {name} ({kind}), which is Anthropic's own")
    lacks.fields(tool, _TOOL, f"the tool {name}'s ")
    schema = table(tool.get("input_schema"))
    return Tool(name, string(tool.get("description")), schema, kind="function" if kind == "custom" else kind)


def _choice(given: Json, lacks: Lacks) -> Choice:
    match given.get("type"):
        case None | "auto":
            return Choice()
        case "none":
            return Choice(Choosing.NONE)
        case "any":
            return Choice(Choosing.ANY)
        case "tool":
            return Choice(Choosing.ONE, string(given.get("name")))
    lacks.note("its tool_choice")
    return Choice()


def _form(given: Json) -> Form | None:
    schema = table(given.get("schema"))
    return Form(schema) if schema else None
