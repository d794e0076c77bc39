"""Requests of the four dialects, read into a ``Conversation``."""

import json
from collections.abc import Callable, Iterable, Mapping

from holdfast.broker.demo.conversation import Conversation, Part, Role, Tool
from holdfast.broker.demo.shape import Json, items, string, table, tables, texts
from holdfast.protocol.models import Wire

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.MODEL, "model": Role.MODEL}


def read(wire: Wire, body: Json, model: str = "") -> Conversation:
    """``model`` is what the path says, for the dialect that has it there."""
    return _READERS[wire](body, model)


def _chat(body: Json, _model: str) -> Conversation:
    parts: list[Part] = []
    for number, message in enumerate(tables(body.get("messages"))):
        if message.get("role") == "tool":
            parts.append(Part(Role.RESULT, "\n".join(texts(message.get("content"))), number))
            continue
        parts += _said(message, number)
        for call in tables(message.get("tool_calls")):
            parts.append(Part(Role.CALL, string(table(call.get("function")).get("arguments")), number))
    functions = [table(tool.get("function")) for tool in tables(body.get("tools"))]
    form = table(table(body.get("response_format")).get("json_schema")).get("schema")
    streamed = body.get("stream") is True
    return Conversation(
        string(body.get("model")),
        parts,
        _tools(functions, "parameters"),
        streamed,
        not streamed or table(body.get("stream_options")).get("include_usage") is True,
        table(form) or None,
    )


def _responses(body: Json, _model: str) -> Conversation:
    parts = [Part(Role.SYSTEM, text, -1) for text in texts(body.get("instructions"))]
    given = body.get("input")
    for number, item in enumerate(tables([{"role": "user", "content": given}] if isinstance(given, str) else given)):
        kind = string(item.get("type")) or "message"
        if kind == "message":
            parts += _said(item, number)
        elif kind.endswith("_output"):
            output = item.get("output")
            parts.append(Part(Role.RESULT, "\n".join(texts(output)) or json.dumps(output), number))
        elif kind.endswith("_call"):
            parts.append(Part(Role.CALL, string(item.get("arguments")) or json.dumps(item.get("action")), number))
    tools = []
    for tool in tables(body.get("tools")):
        kind = string(tool.get("type"))
        tools.append(Tool(string(tool.get("name")) or kind, table(tool.get("parameters")), kind))
    form = table(table(table(body.get("text")).get("format")).get("schema"))
    return Conversation(
        string(body.get("model")), parts, tools, body.get("stream") is True, usage_wanted=True, form=form or None
    )


def _messages(body: Json, _model: str) -> Conversation:
    parts = [Part(Role.SYSTEM, text, -1) for text in texts(body.get("system"))]
    for number, message in enumerate(tables(body.get("messages"))):
        if isinstance(message.get("content"), str):
            parts += _said(message, number)
            continue
        for block in tables(message.get("content")):
            kind = block.get("type")
            if kind == "tool_result":
                parts.append(Part(Role.RESULT, "\n".join(texts(block.get("content"))), number))
            elif kind == "tool_use":
                parts.append(Part(Role.CALL, json.dumps(block.get("input")), number))
            elif kind in ("text", "image"):
                parts += _said({"role": message.get("role"), "content": [block]}, number)
    form = table(table(table(body.get("output_config")).get("format")).get("schema"))
    form = form or table(table(body.get("output_format")).get("schema"))
    return Conversation(
        string(body.get("model")),
        parts,
        _tools(tables(body.get("tools")), "input_schema"),
        body.get("stream") is True,
        form=form or None,
    )


def _gemini(body: Json, model: str) -> Conversation:
    system = table(body.get("systemInstruction") or body.get("system_instruction"))
    parts = [Part(Role.SYSTEM, text, -1) for text in texts(system.get("parts"))]
    for number, message in enumerate(tables(body.get("contents"))):
        for piece in tables(message.get("parts")):
            if "functionResponse" in piece:
                response = table(table(piece["functionResponse"]).get("response"))
                parts.append(Part(Role.RESULT, string(response.get("output")) or json.dumps(response), number))
            elif "functionCall" in piece:
                parts.append(Part(Role.CALL, json.dumps(table(piece["functionCall"]).get("args")), number))
            elif not piece.get("thought"):
                parts += _said({"role": message.get("role"), "content": [piece]}, number)
    declared = [
        table(function) for tool in tables(body.get("tools")) for function in items(tool.get("functionDeclarations"))
    ]
    settings = table(body.get("generationConfig"))
    form = table(settings.get("responseJsonSchema")) or table(settings.get("responseSchema"))
    tools = [*_tools(declared, "parameters", "parametersJsonSchema")]
    return Conversation(model, parts, tools, form=form or None)


_READERS: Mapping[Wire, Callable[[Json, str], Conversation]] = {
    Wire.CHAT: _chat,
    Wire.RESPONSES: _responses,
    Wire.MESSAGES: _messages,
    Wire.GEMINI: _gemini,
}


def _said(message: Json, number: int) -> list[Part]:
    role = _ROLES.get(string(message.get("role")), Role.USER)
    content = message.get("content")
    shown = [Part(role, "", number, image) for image in map(_image, tables(content)) if image]
    return [*(Part(role, text, number) for text in texts(content)), *shown]


def _image(block: Json) -> str:
    """Its kind and size, where a block is an image in any of the dialects."""
    link = block.get("image_url")
    kind, _, data = string(link if isinstance(link, str) else table(link).get("url")).partition(";base64,")
    source = table(block.get("source") or block.get("inlineData") or block.get("inline_data"))
    kind = kind.removeprefix("data:") or string(source.get("media_type") or source.get("mimeType"))
    data = data or string(source.get("data"))
    return f"{kind} of {len(data) * 3 // 4} bytes" if kind and data else ""


def _tools(found: Iterable[Json], *schemas: str) -> list[Tool]:
    named = [tool for tool in found if tool.get("name")]
    return [
        Tool(string(tool["name"]), next((table(tool[key]) for key in schemas if tool.get(key)), {})) for tool in named
    ]
