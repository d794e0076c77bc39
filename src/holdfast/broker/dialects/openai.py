"""What is the same in both of OpenAI's dialects, though it does not stand at the same place."""

from holdfast.broker.dialects.json import Json, string, table
from holdfast.broker.dialects.lacks import Lacks
from holdfast.broker.dialects.question import Choice, Choosing, Form

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def choice_of(given: object, named: Json, lacks: Lacks) -> Choice:
    """The choice of a tool; ``named`` has its name, where one tool is meant."""
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


def form_of(kind: object, told: Json, lacks: Lacks, *, where: str) -> Form | None:
    """The form of an answer; ``told`` has the schema, where there is one."""
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
