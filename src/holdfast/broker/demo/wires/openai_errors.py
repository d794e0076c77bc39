"""Errors as OpenAI words them, for both of its dialects."""

_KINDS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def code_of(status: int) -> tuple[str, str | None]:
    """The error's type and its code."""
    return _KINDS.get(status, ("invalid_request_error", None) if status < 500 else ("server_error", "server_error"))


def failure(status: int, message: str) -> dict[str, object]:
    kind, code = code_of(status)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
