"""Errors as OpenAI's two APIs word them."""

from collections.abc import Mapping

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def failure(status: int, message: str, code: str) -> Mapping[str, object]:
    return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": code}}
