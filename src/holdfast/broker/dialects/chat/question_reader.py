"""Questions in OpenAI's chat completions."""

from holdfast.broker.dialects.json import Json, decimal, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, Lacks
from holdfast.broker.dialects.openai import choice_of, form_of
from holdfast.broker.dialects.question import (
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
    image_from_url,
)

_CARRIED = {
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "max_tokens", "max_completion_tokens"),
    *("temperature", "top_p", "stop", "stream", "stream_options", "n", "response_format", "modalities"),
}
_HINTS = HINTS | {
    *("chat_template_kwargs", "enable_thinking", "prediction", "prompt_cache_key", "prompt_cache_retention"),
    *("provider", "reasoning", "reasoning_effort", "safety_identifier", "seed", "store", "thinking", "tool_stream"),
    *("usage", "verbosity"),
}
_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "reasoning_details"}
_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.MODEL}


def read(data: Json) -> Talk:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    if data.get("n") not in (None, 1):
        lacks.note("several answers to one question (n)")
    if data.get("modalities") not in (None, ["text"]):
        lacks.note("answers that are not text (modalities)")
    streamed = data.get("stream") is True
    stop, choice, form = data.get("stop"), data.get("tool_choice"), table(data.get("response_format"))
    return Talk(
        model=string(data.get("model")),
        messages=_messages(data, lacks),
        tools=[_tool(tool, lacks) for tool in tables(data.get("tools"))],
        choice=choice_of(choice, table(table(choice).get("function")), lacks),
        parallel=_said(data.get("parallel_tool_calls")),
        max_tokens=whole(data.get("max_completion_tokens")) or whole(data.get("max_tokens")),
        temperature=decimal(data.get("temperature")),
        top_p=decimal(data.get("top_p")),
        stop=tuple(string(one) for one in ([stop] if isinstance(stop, str) else items(stop))),
        streamed=streamed,
        usage_wanted=not streamed or table(data.get("stream_options")).get("include_usage") is True,
        form=form_of(form.get("type"), table(form.get("json_schema")), lacks, where="response_format"),
        lacks=lacks.all,
    )


def _messages(data: Json, lacks: Lacks) -> list[Message]:
    names: dict[str, str] = {}  # of calls: a result does not say which tool it is of
    found = []
    for message in tables(data.get("messages")):
        lacks.fields(message, _MESSAGE, "message.")
        if message.get("role") == "tool":
            call_id = string(message.get("tool_call_id"))
            parts = tuple(part for part in _parts(message, lacks) if isinstance(part, Text | Image | LinkedImage))
            found.append(Message(Role.USER, (ToolResult(call_id, names.get(call_id, ""), parts),)))
            continue
        calls = [_call(call, lacks) for call in tables(message.get("tool_calls"))]
        names |= {call.id: call.name for call in calls}
        role = _ROLES.get(string(message.get("role")), Role.USER)
        found.append(Message(role, (*_parts(message, lacks), *calls)))
    return found


def _parts(message: Json, lacks: Lacks) -> list[Part]:
    content = message.get("content")
    thought = string(message.get("reasoning_content")) or string(message.get("reasoning"))
    found: list[Part] = [Thought(thought)] if thought else []
    if isinstance(content, str):
        return [*found, Text(content)] if content else found
    for part in items(content):
        kind = table(part).get("type")
        image = image_from_url(string(table(table(part).get("image_url")).get("url"))) if kind == "image_url" else None
        if image is not None:
            found.append(image)
        elif kind in (None, "text", "refusal"):
            found += [Text(text) for text in texts([part])]
        else:
            lacks.note(f"content of type {kind}")
    return found


def _call(call: Json, lacks: Lacks) -> ToolCall:
    if call.get("type") not in (None, "function"):
        lacks.note(f"tool calls of type {call['type']}")
    function = table(call.get("function"))
    return ToolCall(string(call.get("id")), string(function.get("name")), string(function.get("arguments")))


def _tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "function"
    if kind != "function":
        lacks.note(f"the tool {kind}")
    function = table(tool.get("function"))
    name = string(function.get("name")) or kind
    strict = function.get("strict") is True
    return Tool(name, string(function.get("description")), table(function.get("parameters")), strict, kind)


def _said(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
