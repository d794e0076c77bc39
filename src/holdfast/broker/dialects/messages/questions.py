"""Questions in Anthropic's messages, read and written. Earlier thoughts are not written: unsigned ones are refused."""

import re

from holdfast.broker.dialects.json import Json, decimal, dumped, items, object_in, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, CannotCarry, Lacks, Target, check
from holdfast.broker.dialects.question import (
    Choice,
    Choosing,
    CommonQuestion,
    Form,
    Image,
    LinkedImage,
    Message,
    Part,
    Role,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    fitting_id,
    merged,
    results_first,
    system_first,
)
from holdfast.broker.dialects.schemas import of_object

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
_NAMES = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HOTTEST = 1.0
_Data = dict[str, object]


def read(data: Json) -> CommonQuestion:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    config = table(data.get("output_config"))
    lacks.fields(config, {"format", "effort"}, "output_config.")
    choice = table(data.get("tool_choice"))
    system = tuple(Text(text) for text in texts(data.get("system")) if text)
    names: dict[str, str] = {}
    messages = [_read_message(message, names, lacks) for message in tables(data.get("messages"))]
    return CommonQuestion(
        model=string(data.get("model")),
        messages=[Message(Role.SYSTEM, system), *messages] if system else messages,
        tools=[_read_tool(tool, lacks) for tool in tables(data.get("tools")) if _is_seen(tool, data)],
        choice=_read_choice(choice, lacks),
        parallel=False if choice.get("disable_parallel_tool_use") is True else None,
        max_tokens=whole(data.get("max_tokens")),
        temperature=decimal(data.get("temperature")),
        top_p=decimal(data.get("top_p")),
        top_k=whole(data.get("top_k")),
        stop=tuple(string(one) for one in items(data.get("stop_sequences"))),
        streamed=data.get("stream") is True,
        form=_read_form(table(config.get("format")) or table(data.get("output_format"))),
        lacks=lacks.all,
    )


def _read_message(message: Json, names: dict[str, str], lacks: Lacks) -> Message:
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
                told = _read_result(block.get("content"), lacks)
                parts.append(ToolResult(call_id, names.get(call_id, ""), told, block.get("is_error") is True))
            case _:
                parts += _read_block(block, lacks)
    return Message(role, tuple(parts))


def _read_result(content: object, lacks: Lacks) -> tuple[Text | Image | LinkedImage, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(part for block in tables(content) for part in _read_block(block, lacks))


def _read_block(block: Json, lacks: Lacks) -> list[Text | Image | LinkedImage]:
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
    """Say whether the model may see a tool: some are hidden until another tool has found them."""
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


def _read_tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "custom"
    name = string(tool.get("name")) or kind
    if kind != "custom":
        lacks.note(f"the tool {name} ({kind}), which is Anthropic's own")
    lacks.fields(tool, _TOOL, f"the tool {name}'s ")
    schema = table(tool.get("input_schema"))
    return Tool(name, string(tool.get("description")), schema, kind="function" if kind == "custom" else kind)


def _read_choice(given: Json, lacks: Lacks) -> Choice:
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


def _read_form(given: Json) -> Form | None:
    schema = table(given.get("schema"))
    return Form(schema) if schema else None


def write(talk: CommonQuestion, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    system, rest = system_first(talk.messages)
    most = target.most(talk) or target.output_tokens  # it must be said here
    data: _Data = {"model": target.model, "max_tokens": most}
    if system:
        data["system"] = [{"type": "text", "text": text} for text in system if text.strip()]
    data["messages"] = [one for message in merged(rest) for one in _write_message(message)]
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
        data["tools"] = [_write_tool(tool) for tool in talk.tools]
        if talk.choice != Choice() or talk.parallel is False:
            data["tool_choice"] = _write_choice(talk)
    if talk.form is not None:
        if talk.form.schema is None:
            raise CannotCarry("JSON without a schema")
        data["output_config"] = {"format": {"type": "json_schema", "schema": talk.form.schema}}
    if talk.streamed:
        data["stream"] = True
    return data


def _write_message(message: Message) -> list[_Data]:
    parts = results_first(message.parts) if message.role is Role.USER else message.parts
    content = [block for part in parts if (block := _write_block(part)) is not None]
    role = "assistant" if message.role is Role.MODEL else "user"
    return [{"role": role, "content": content}] if content else []


def _write_block(part: Part) -> _Data | None:
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
            content = [block for one in parts if (block := _write_block(one)) is not None]
            told: _Data = {"type": "tool_result", "tool_use_id": fitting_id(call_id), "content": content}
            return {**told, "is_error": True} if is_error else told
    return None


def _write_tool(tool: Tool) -> _Data:
    told: _Data = {"name": tool.name, "input_schema": of_object(tool.schema)}
    return {**told, "description": tool.description} if tool.description else told


def _write_choice(talk: CommonQuestion) -> _Data:
    words = {Choosing.AUTO: "auto", Choosing.NONE: "none", Choosing.ANY: "any", Choosing.ONE: "tool"}
    told: _Data = {"type": words[talk.choice.how]}
    if talk.choice.how is Choosing.ONE:
        told["name"] = talk.choice.name
    if talk.parallel is False and talk.choice.how is not Choosing.NONE:
        told["disable_parallel_tool_use"] = True
    return told
