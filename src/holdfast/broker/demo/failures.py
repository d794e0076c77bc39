"""Errors of the demo model, as a provider who speaks each dialect words them: as a document, and within a stream."""

from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.sse import event
from holdfast.vocabulary.models import Wire

_OPENAI = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
"""Type and code."""
_MESSAGES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def document(wire: Wire, status: int, message: str) -> Json:
    """The body of an answer with that status."""
    match wire:
        case Wire.MESSAGES:
            kind = _MESSAGES.get(status, "invalid_request_error" if status < 500 else "api_error")
            return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_demo"}
        case Wire.GEMINI:
            kind = _GEMINI.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
            return {"error": {"code": status, "message": message, "status": kind}}
        case _:
            kind, code = _openai(status)
            return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def within(wire: Wire, status: int, message: str, number: int) -> bytes:
    """The event that ends a stream; ``number`` is how many there were before."""
    if wire is Wire.RESPONSES:
        error = {"code": _openai(status)[1] or "invalid_prompt", "message": message}
        failed: Json = {"status": "failed", "output": [], "error": error, "usage": None}
        kind = "response.failed"
        return event({"type": kind, "response": failed, "sequence_number": number}, kind)
    return event(document(wire, status, message), "error" if wire is Wire.MESSAGES else None)


def _openai(status: int) -> tuple[str, str | None]:
    return _OPENAI.get(status, ("invalid_request_error", None) if status < 500 else ("server_error", "server_error"))
