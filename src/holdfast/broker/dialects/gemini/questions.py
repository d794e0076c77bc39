"""Questions in Gemini's dialect, read and written.

The model's name is not in them, and calls may have no ids. Earlier thoughts are not written: Google takes only those
that it has signed.
"""

import re

from holdfast.broker.dialects.json import Json, decimal, dumped, items, object_in, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import CannotCarry, Lacks, Target, check
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
from holdfast.broker.dialects.schemas import from_openapi, of_object

_CARRIED = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "generationConfig"}
_SETTINGS = {
    *("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "candidateCount", "responseMimeType"),
    *("responseSchema", "responseJsonSchema", "responseModalities"),
}
_HINTS = {"labels", "safetySettings", "serviceTier"}
_SETTING_HINTS = {"mediaResolution", "seed", "thinkingConfig"}
_JSON = "application/json"
NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google wants with a call that one of its newer models has not made itself: without, it is refused."""
_OLDER = re.compile(r"(models/)?gemini-[12]\b")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_Data = dict[str, object]


def read(data: Json) -> CommonQuestion:
    lacks = Lacks()
    lacks.fields(data, _CARRIED | _HINTS)
    settings = table(data.get("generationConfig"))
    lacks.fields(settings, _SETTINGS | _SETTING_HINTS, "generationConfig.")
    if settings.get("candidateCount") not in (None, 1):
        lacks.note("several answers to one question (candidateCount)")
    if [string(one).upper() for one in items(settings.get("responseModalities"))] not in ([], ["TEXT"]):
        lacks.note("answers that are not text (responseModalities)")
    given = data.get("systemInstruction") or data.get("system_instruction")
    said = texts(table(given).get("parts")) if isinstance(given, dict) else texts(given)
    system = tuple(Text(text) for text in said)
    messages = _Contents(lacks).read(data)
    return CommonQuestion(
        model="",
        messages=[Message(Role.SYSTEM, system), *messages] if system else messages,
        tools=[one for tool in tables(data.get("tools")) for one in _read_tools(tool, lacks)],
        choice=_read_choice(table(data.get("toolConfig")), lacks),
        max_tokens=whole(settings.get("maxOutputTokens")),
        temperature=decimal(settings.get("temperature")),
        top_p=decimal(settings.get("topP")),
        top_k=whole(decimal(settings.get("topK")) and int(decimal(settings.get("topK")) or 0)),
        stop=tuple(string(one) for one in items(settings.get("stopSequences"))),
        form=_read_form(settings, lacks),
        lacks=lacks.all,
    )


class _Contents:
    """Gives ids to the calls, and to each result that of its call: by its id, or by its name and order."""

    def __init__(self, lacks: Lacks) -> None:
        self._lacks = lacks
        self._open: list[ToolCall] = []
        self._count = 0

    def read(self, data: Json) -> list[Message]:
        found = []
        for content in tables(data.get("contents")):
            role = Role.MODEL if content.get("role") == "model" else Role.USER
            parts = [one for part in tables(content.get("parts")) if (one := self._part(part, role)) is not None]
            found.append(Message(role, tuple(parts)))
        return found

    def _part(self, part: Json, role: Role) -> Part | None:
        if "functionCall" in part:
            return self._call(table(part["functionCall"]))
        if "functionResponse" in part:
            return self._result(table(part["functionResponse"]))
        if "inlineData" in part:
            data = table(part["inlineData"])
            kind = string(data.get("mimeType"))
            if role is Role.USER and kind.startswith("image/"):
                return Image(kind, string(data.get("data")))
            self._lacks.note(f"content of type {kind or 'inlineData'}")
            return None
        if isinstance(part.get("text"), str):
            text = string(part["text"])
            if not text:
                return None
            return Thought(text) if part.get("thought") is True else Text(text)
        self._lacks.fields(part, {"thought", "thoughtSignature"}, "a part with ")
        return None

    def _call(self, told: Json) -> ToolCall:
        self._count += 1
        call_id = string(told.get("id")) or f"call_{self._count}"
        call = ToolCall(call_id, string(told.get("name")), dumped(table(told.get("args"))))
        self._open.append(call)
        return call

    def _result(self, told: Json) -> ToolResult:
        self._lacks.fields(told, {"id", "name", "response"}, "functionResponse.")
        name, call_id = string(told.get("name")), string(told.get("id"))
        call = next((one for one in self._open if call_id and one.id == call_id), None)
        call = call or next((one for one in self._open if one.name == name), None)
        if call is not None:
            self._open.remove(call)
        else:
            self._lacks.note(f"a result of {name}, which was not called")
        response = table(told.get("response"))
        only = next((key for key in ("output", "error") if [*response] == [key]), None)
        text = response[only] if only is not None and isinstance(response[only], str) else dumped(response)
        parts = (Text(string(text)),) if text else ()
        return ToolResult(call.id if call else call_id, name, parts, only == "error")


def _read_tools(tool: Json, lacks: Lacks) -> list[Tool]:
    for name, value in tool.items():
        if name != "functionDeclarations" and value is not None:
            lacks.note(f"the tool {name}, which is Google's own")
    found = []
    for function in tables(tool.get("functionDeclarations")):
        lacks.fields(
            function,
            {"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"},
            "a tool's ",
        )
        schema = table(function.get("parametersJsonSchema")) or from_openapi(table(function.get("parameters")))
        found.append(Tool(string(function.get("name")), string(function.get("description")), schema))
    return found


def _read_choice(config: Json, lacks: Lacks) -> Choice:
    lacks.fields(config, {"functionCallingConfig"}, "toolConfig.")
    calling = table(config.get("functionCallingConfig"))
    names = [string(name) for name in items(calling.get("allowedFunctionNames"))]
    mode = string(calling.get("mode")).upper()
    if mode == "ANY" and len(names) == 1:
        return Choice(Choosing.ONE, names[0])
    if names:
        lacks.note("a choice of some of the tools (allowedFunctionNames)")
    return Choice({"ANY": Choosing.ANY, "NONE": Choosing.NONE}.get(mode, Choosing.AUTO))


def _read_form(settings: Json, lacks: Lacks) -> Form | None:
    kind = settings.get("responseMimeType")
    if kind not in (None, "", "text/plain", _JSON):
        lacks.note(f"an answer as {kind}")
    schema = table(settings.get("responseJsonSchema")) or from_openapi(table(settings.get("responseSchema")))
    if schema:
        return Form(schema)
    return Form() if kind == _JSON else None


def wants_signatures(model: str) -> bool:
    return not _OLDER.match(model)


def write(talk: CommonQuestion, target: Target) -> _Data:
    """Raises ``CannotCarry``."""
    check(talk, target, _NAMES)
    system, rest = system_first(talk.messages)
    signed = wants_signatures(target.model)
    data: _Data = {"contents": [one for message in merged(rest) for one in _write_content(message, signed=signed)]}
    if system:
        data["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    if talk.tools:
        data["tools"] = [{"functionDeclarations": [_write_tool(tool) for tool in talk.tools]}]
        if talk.choice != Choice():
            data["toolConfig"] = {"functionCallingConfig": _write_choice(talk.choice)}
    settings = _write_settings(talk, target)
    if settings:
        data["generationConfig"] = settings
    return data


def _write_settings(talk: CommonQuestion, target: Target) -> _Data:
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


def _write_content(message: Message, *, signed: bool) -> list[_Data]:
    if message.role is Role.MODEL:
        parts = [told for part in message.parts if (told := _write_part(part)) is not None]
        call = next((part for part in parts if "functionCall" in part), None)
        if call is not None and signed:  # of several at once, only the first has one
            call["thoughtSignature"] = NO_SIGNATURE
        return [{"role": "model", "parts": parts}] if parts else []
    parts = []
    behind: list[_Data] = []
    for part in results_first(message.parts):
        told = _write_part(part)
        (parts if isinstance(part, ToolResult) else behind).extend([told] if told is not None else [])
        if isinstance(part, ToolResult):  # there is no room for images in these
            behind += [
                image for one in part.parts if isinstance(one, Image | LinkedImage) and (image := _write_part(one))
            ]
    return [{"role": "user", "parts": [*parts, *behind]}] if parts or behind else []


def _write_part(part: Part) -> _Data | None:
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


def _write_tool(tool: Tool) -> _Data:
    """Write a tool with a JSON schema, and not in Google's own form, which can express less."""
    told: _Data = {"name": tool.name, "parametersJsonSchema": of_object(tool.schema)}
    return {**told, "description": tool.description} if tool.description else told


def _write_choice(choice: Choice) -> _Data:
    if choice.how is Choosing.ONE:
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": {Choosing.AUTO: "AUTO", Choosing.NONE: "NONE", Choosing.ANY: "ANY"}[choice.how]}
