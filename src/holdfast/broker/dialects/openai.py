"""The parts that both of OpenAI's dialects have in common, though at different places."""

from holdfast.broker.dialects.json import Json, string, table
from holdfast.broker.dialects.lacks import Lacks
from holdfast.broker.dialects.question import Choice, Choosing, CommonQuestion, Form

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_CHOICES = {Choosing.AUTO: "auto", Choosing.NONE: "none", Choosing.ANY: "required"}


def choice_of(given: object, named: Json, lacks: Lacks) -> Choice:
    """Return the choice of a tool; ``named`` has its name, where one tool is meant."""
    if given in (None, "auto"):
        return Choice()
    if given == "none":
        return Choice(Choosing.NONE)
    if given == "required":
        return Choice(Choosing.ANY)
    if table(given).get("type") == "function":
        return Choice(Choosing.ONE, string(named.get("name")))
    lacks.note("its tool_choice")
    return Choice()


def settings(talk: CommonQuestion, tools: list[dict[str, object]], named: Json) -> Json:
    """Return the settings of a question, and its tools; ``named`` is the tool that must be used, if one was chosen."""
    found: dict[str, object] = {}
    if talk.temperature not in (None, 1):  # which is what all take by themselves
        found["temperature"] = talk.temperature
    if talk.top_p not in (None, 1):
        found["top_p"] = talk.top_p
    if tools:
        found["tools"] = tools
        if talk.choice != Choice():
            found["tool_choice"] = _CHOICES.get(talk.choice.how) or {"type": "function", **named}
        if talk.parallel is not None:
            found["parallel_tool_calls"] = talk.parallel
    if talk.streamed:
        found["stream"] = True
    return found


def form_of(kind: object, told: Json, lacks: Lacks, *, where: str) -> Form | None:
    """Return the form of an answer; ``told`` has the schema, where there is one."""
    match kind:
        case None | "text":
            return None
        case "json_object":
            return Form()
        case "json_schema":
            return Form(table(told.get("schema")), string(told.get("name")), told.get("strict") is True)
    lacks.note(f"its {where}")
    return None


def error_body(status: int, message: str, code: str) -> Json:
    return {"error": {"message": message, "type": _ERRORS.get(status, "server_error"), "param": None, "code": code}}
