"""Errors of providers: what one says, and whose fault it is. An error stands at the same place in all dialects.

The HTTP status does not always tell whose fault it is: within a stream there is none, and two providers answer with
400, as if the question were wrong, where the daemon's key or account is.
"""

from pydantic_core import from_json, to_json

from holdfast.broker.dialects.json import Json, table, tables

QUESTION = 400
KEY = 401
MONEY = 402
ACCOUNT = 403
BUSY = 429
PROVIDER = 502

_WORDS = {
    "API_KEY_INVALID": KEY,
    "authentication_error": KEY,
    "invalid_api_key": KEY,
    "billing_error": MONEY,
    "billing_hard_limit_reached": MONEY,
    "insufficient_quota": MONEY,
    "FAILED_PRECONDITION": ACCOUNT,
    "PERMISSION_DENIED": ACCOUNT,
    "permission_error": ACCOUNT,
    "RESOURCE_EXHAUSTED": BUSY,
    "rate_limit_error": BUSY,
    "rate_limit_exceeded": BUSY,
    "INVALID_ARGUMENT": QUESTION,
    "NOT_FOUND": QUESTION,
    "context_length_exceeded": QUESTION,
    "cyber_policy": QUESTION,
    "invalid_request_error": QUESTION,
    "not_found_error": QUESTION,
    "request_too_large": QUESTION,
    "string_above_max_length": QUESTION,
}
"""The more exact ones first: an error may have several."""
_QUESTIONS = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download_image")
"""How codes of OpenAI's that are about a question begin."""
_STATUSES = {400: QUESTION, 404: QUESTION, 413: QUESTION, 422: QUESTION, 401: KEY, 402: MONEY, 403: ACCOUNT, 429: BUSY}
_NO_CREDIT = "credit balance is too low"
"""Anthropic has no code for it."""


def status_of(error: Json) -> int:
    """Return the HTTP status that would have been right; ``PROVIDER`` where nothing says that it is anybody else's."""
    reasons = [detail.get("reason") for detail in tables(error.get("details"))]
    said = {str(word) for word in (error.get("code"), error.get("type"), error.get("status"), *reasons)}
    if _NO_CREDIT in str(error.get("message")):
        return MONEY
    for word, status in _WORDS.items():
        if word in said and status != QUESTION:
            return status
    for status, meant in _STATUSES.items():
        if str(status) in said:
            return meant
    if any(word in _WORDS or word.startswith(_QUESTIONS) for word in said):
        return QUESTION
    return PROVIDER


def meant_status(status: int, body: bytes) -> int:
    """Return the status that an error should have had."""
    if status not in (QUESTION, BUSY):
        return status
    meant = status_of(_error(_parsed(body)))
    if status == BUSY:  # OpenAI says so of an account that is empty: later will not be better
        return MONEY if meant == MONEY else BUSY
    return meant if meant in (KEY, MONEY, ACCOUNT) else status


def message_of(body: bytes) -> str:
    """Return the message of an error; empty if it has none."""
    return str(_error(_parsed(body)).get("message") or "")


def with_note(body: bytes, note: str) -> bytes:
    """Return the error with a note at the end of its message; unchanged if it has no message."""
    told = _parsed(body)
    error = _error(told)
    if not isinstance(error, dict) or not error.get("message"):
        return body
    error["message"] = f"{error['message']}{note}"
    return to_json(told)


def _parsed(body: bytes) -> object:
    try:
        return from_json(body)
    except ValueError:
        return None


def _error(told: object) -> Json:
    """Find the error in a body; Gemini's streams are lists."""
    return table(next((one for one in tables(told) if one), table(told)).get("error"))
