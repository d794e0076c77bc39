"""Errors of the demo model in the form of each dialect: as a document, and within a stream."""

from holdfast.broker.dialects.gemini import answers as gemini
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.messages import answers as messages
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
_MESSAGES = {**messages.ERRORS, 402: "billing_error", 503: "api_error"}


def document(wire: Wire, status: int, message: str) -> Json:
    """Return the body of an answer with that status."""
    match wire:
        case Wire.MESSAGES:
            kind = _MESSAGES.get(status, "invalid_request_error" if status < 500 else "api_error")
            return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_demo"}
        case Wire.GEMINI:
            kind = gemini.ERRORS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
            return {"error": {"code": status, "message": message, "status": kind}}
        case _:
            kind, code = _openai(status)
            return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def within(wire: Wire, status: int, message: str, number: int) -> bytes:
    """Return the event that ends a stream; ``number`` is how many there were before."""
    if wire is Wire.RESPONSES:
        error = {"code": _openai(status)[1] or "invalid_prompt", "message": message}
        failed: Json = {"status": "failed", "output": [], "error": error, "usage": None}
        kind = "response.failed"
        return event({"type": kind, "response": failed, "sequence_number": number}, kind)
    return event(document(wire, status, message), "error" if wire is Wire.MESSAGES else None)


def _openai(status: int) -> tuple[str, str | None]:
    return _OPENAI.get(status, ("invalid_request_error", None) if status < 500 else ("server_error", "server_error"))
