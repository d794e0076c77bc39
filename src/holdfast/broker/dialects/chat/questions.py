"""Questions in OpenAI's chat completions, read and written.

The imitators of this dialect know less of it, so only its oldest fields are written.
"""

import re

from holdfast.broker.dialects.json import Json, decimal, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import HINTS, Lacks, Target, check
from holdfast.broker.dialects.openai import choice_of, form_of, settings
from holdfast.broker.dialects.question import (
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
    image_from_url,
    image_url,
    merged,
    results_first,
)
from holdfast.broker.dialects.schemas import of_object

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
_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
_Data = dict[str, object]


def read(data: Json) -> CommonQuestion:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    if data.get("n") not in (None, 1):
        lacks.note("several answers to one question (n)")
    if data.get("modalities") not in (None, ["text"]):
        lacks.note("answers that are not text (modalities)")
    streamed = data.get("stream") is True
    stop, choice, form = data.get("stop"), data.get("tool_choice"), table(data.get("response_format"))
    return CommonQuestion(
        model=string(data.get("model")),
        messages=_read_messages(data, lacks),
        tools=[_read_tool(tool, lacks) for tool in tables(data.get("tools"))],
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


def _read_messages(data: Json, lacks: Lacks) -> list[Message]:
    names: dict[str, str] = {}  # of calls: a result does not say which tool it is of
    found = []
    for message in tables(data.get("messages")):
        lacks.fields(message, _MESSAGE, "message.")
        if message.get("role") == "tool":
            call_id = string(message.get("tool_call_id"))
            parts = tuple(part for part in _read_parts(message, lacks) if isinstance(part, Text | Image | LinkedImage))
            found.append(Message(Role.USER, (ToolResult(call_id, names.get(call_id, ""), parts),)))
            continue
        calls = [_read_call(call, lacks) for call in tables(message.get("tool_calls"))]
        names |= {call.id: call.name for call in calls}
        role = _ROLES.get(string(message.get("role")), Role.USER)
        found.append(Message(role, (*_read_parts(message, lacks), *calls)))
    return found


def _read_parts(message: Json, lacks: Lacks) -> list[Part]:
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


def _read_call(call: Json, lacks: Lacks) -> ToolCall:
    if call.get("type") not in (None, "function"):
        lacks.note(f"tool calls of type {call['type']}")
    function = table(call.get("function"))
    return ToolCall(string(call.get("id")), string(function.get("name")), string(function.get("arguments")))


def _read_tool(tool: Json, lacks: Lacks) -> Tool:
    kind = string(tool.get("type")) or "function"
    if kind != "function":
        lacks.note(f"the tool {kind}")
    function = table(tool.get("function"))
    name = string(function.get("name")) or kind
    strict = function.get("strict") is True
    return Tool(name, string(function.get("description")), table(function.get("parameters")), strict, kind)


def _said(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def write(talk: CommonQuestion, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    data: _Data = {"model": target.model}
    data["messages"] = [one for message in merged(talk.messages) for one in _write_message(message)]
    most = target.most(talk)
    if most is not None:
        data["max_completion_tokens" if target.is_openai else "max_tokens"] = most
    data |= settings(talk, [_write_tool(tool) for tool in talk.tools], {"function": {"name": talk.choice.name}})
    if talk.stop:
        data["stop"] = list(talk.stop)
    if talk.form is not None:
        data["response_format"] = _write_form(talk.form)
    if talk.streamed and target.asks_for_usage:
        data["stream_options"] = {"include_usage": True}
    return data


def _write_message(message: Message) -> list[_Data]:
    if message.role is Role.MODEL:
        return _write_answer(message)
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
    content = [_write_part(part) for part in rest if isinstance(part, Text | Image | LinkedImage)]
    if len(content) == 1 and isinstance(rest[0], Text):
        return [*results, {"role": "user", "content": rest[0].text}]
    return [*results, {"role": "user", "content": content}] if content else results


def _write_answer(message: Message) -> list[_Data]:
    said = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [_write_call(part) for part in message.parts if isinstance(part, ToolCall)]
    if not said and not calls:
        return []
    return [{"role": "assistant", "content": said or None, **({"tool_calls": calls} if calls else {})}]


def _write_part(part: Text | Image | LinkedImage) -> _Data:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def _write_call(call: ToolCall) -> _Data:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": fitting_id(call.id), "type": "function", "function": function}


def _write_tool(tool: Tool) -> _Data:
    function: _Data = {"name": tool.name, "parameters": of_object(tool.schema)}
    if tool.description:
        function["description"] = tool.description
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _write_form(form: Form) -> _Data:
    if form.schema is None:
        return {"type": "json_object"}
    told: _Data = {"name": form.name or "answer", "schema": form.schema}
    return {"type": "json_schema", "json_schema": {**told, "strict": form.strict}}
