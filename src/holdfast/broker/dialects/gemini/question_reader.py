"""Questions in Gemini's dialect. The model's name is not in them, and calls may have no ids."""

from holdfast.broker.dialects.json import Json, decimal, dumped, items, string, table, tables, texts, whole
from holdfast.broker.dialects.lacks import Lacks
from holdfast.broker.dialects.question import (
    Choice,
    Choosing,
    Form,
    Image,
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
from holdfast.broker.dialects.schemas import from_openapi

_CARRIED = {"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "generationConfig"}
_SETTINGS = {
    *("temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "candidateCount", "responseMimeType"),
    *("responseSchema", "responseJsonSchema", "responseModalities"),
}
_HINTS = {"labels", "safetySettings", "serviceTier"}
_SETTING_HINTS = {"mediaResolution", "seed", "thinkingConfig"}
_JSON = "application/json"


def read(data: Json) -> Talk:
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
    return Talk(
        model="",
        messages=[Message(Role.SYSTEM, system), *messages] if system else messages,
        tools=[one for tool in tables(data.get("tools")) for one in _tools(tool, lacks)],
        choice=_choice(table(data.get("toolConfig")), lacks),
        max_tokens=whole(settings.get("maxOutputTokens")),
        temperature=decimal(settings.get("temperature")),
        top_p=decimal(settings.get("topP")),
        top_k=whole(decimal(settings.get("topK")) and int(decimal(settings.get("topK")) or 0)),
        stop=tuple(string(one) for one in items(settings.get("stopSequences"))),
        form=_form(settings, lacks),
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


def _tools(tool: Json, lacks: Lacks) -> list[Tool]:
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


def _choice(config: Json, lacks: Lacks) -> Choice:
    lacks.fields(config, {"functionCallingConfig"}, "toolConfig.")
    calling = table(config.get("functionCallingConfig"))
    names = [string(name) for name in items(calling.get("allowedFunctionNames"))]
    mode = string(calling.get("mode")).upper()
    if mode == "ANY" and len(names) == 1:
        return Choice(Choosing.ONE, names[0])
    if names:
        lacks.note("a choice of some of the tools (allowedFunctionNames)")
    return Choice({"ANY": Choosing.ANY, "NONE": Choosing.NONE}.get(mode, Choosing.AUTO))


def _form(settings: Json, lacks: Lacks) -> Form | None:
    kind = settings.get("responseMimeType")
    if kind not in (None, "", "text/plain", _JSON):
        lacks.note(f"an answer as {kind}")
    schema = table(settings.get("responseJsonSchema")) or from_openapi(table(settings.get("responseSchema")))
    if schema:
        return Form(schema)
    return Form() if kind == _JSON else None
