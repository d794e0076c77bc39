"""Every failure leaves the API in one shape: ``{"error": {"code", "message", "request_id"}}``."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.edge.access import Access
from holdfast.api.wire.patterns import WORDS
from holdfast.errors import BadInput, HoldfastError, UpgradeRequired

REQUEST_ID = "holdfast.request_id"
"""Where the request id lives in an ASGI scope."""

NO_UPGRADE = (
    "this is a WebSocket, and an ordinary request came: if a proxy is on the way, have it pass on the headers "
    "Upgrade and Connection (docs/proxy.md)"
)

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")


class ErrorBody(BaseModel):
    code: str
    message: str
    request_id: str


class ErrorReply(BaseModel):
    """What every failed request gets."""

    error: ErrorBody


_SCHEMAS = "#/components/schemas/"
REPLY_REF = f"{_SCHEMAS}{ErrorReply.__name__}"


def schemas() -> dict[str, Any]:
    """Return the schemas that ``REPLY_REF`` leads to in OpenAPI."""
    reply = ErrorReply.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    return {**reply.pop("$defs"), ErrorReply.__name__: reply}


def error_reply(
    scope: Scope, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    message = message.encode(errors="replace").decode()  # it may name a field that the caller made up
    body = ErrorReply(error=ErrorBody(code=code, message=message, request_id=scope.get(REQUEST_ID, "")))
    return Response(body.model_dump_json(), status, dict(headers or {}), "application/json")


def reply_to(scope: Scope, exc: HoldfastError) -> Response:
    """Return the reply for an error of ours."""
    headers = {}
    if exc.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif exc.status in (429, 503):
        headers["Retry-After"] = "1"
    return error_reply(scope, exc.status, exc.code, exc.message, headers)


async def refuse(scope: Scope, receive: Receive, send: Send, exc: HoldfastError) -> None:
    """Answer for a middleware, which stands outside the framework's own handling of errors; a WebSocket, too."""
    _note(exc)
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await reply_to(scope, exc)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": exc.code})


def _note(exc: HoldfastError) -> None:
    if exc.status >= 500:
        log.warning("request failed", code=exc.code, error=exc.message)


def in_words(errors: Sequence[Mapping[str, Any]]) -> str:
    """Say what is wrong with a request: each field is named, and nothing that was sent is repeated."""
    return "; ".join(dict.fromkeys(_one(error) for error in errors[:5]))


def _one(error: Mapping[str, Any]) -> str:
    where = [str(part)[:100] for part in error["loc"]]
    place = where.pop(0) if where and where[0] in ("body", "query", "path", "header") else "body"
    name = ".".join(where)
    match error["type"]:
        case "json_invalid":
            return "the body is not valid JSON; send an object with Content-Type: application/json"
        case "missing":
            return f"{name} is required" if name else "a JSON body is required"
        case "extra_forbidden":
            return f"{name} is not a known field"
        case "model_type" | "model_attributes_type":
            return f"{name or 'the body'} must be a JSON object, sent with Content-Type: application/json"
        case "string_pattern_mismatch" if (words := WORDS.get(error["ctx"]["pattern"])) is not None:
            return f"{name or place}: must be {words}"
        case "value_error":
            return f"{name}: {str(error['msg']).removeprefix('Value error, ')}" if name else _plain(error)
        case _:
            return f"{name or place}: {_plain(error)}"


def _plain(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return (text[:1].lower() + text[1:]).replace("input should", "must")


def holdfast_reply(scope: Scope, exc: HoldfastError) -> Response:
    """Return the reply for an error of ours that was met while a request was served; what is our fault goes to the
    log."""
    _note(exc)
    return reply_to(scope, exc)


async def on_holdfast_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HoldfastError)
    return holdfast_reply(request.scope, exc)


async def on_invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    return reply_to(request.scope, BadInput(in_words(exc.errors())))


async def on_http_exception(access: Access, request: Request, exc: Exception) -> Response:
    """Answer what the framework itself raises: no such route, wrong method, a body that cannot be read."""
    assert isinstance(exc, HTTPException)
    cause = exc.__cause__
    if isinstance(cause, HoldfastError | ClientDisconnect):  # raised below the framework's own body reading
        if isinstance(cause, ClientDisconnect):
            raise cause
        return holdfast_reply(request.scope, cause)
    path, method = request.url.path[:200], request.method
    match exc.status_code:
        case 404 if method == "GET" and access.need_of("WS", path) is not None:
            return reply_to(request.scope, UpgradeRequired(NO_UPGRADE))
        case 404:
            code, message = "not_found", f"there is nothing at {path}; /docs lists what there is"
        case 405:
            code, message = "method_not_allowed", f"{method} is not possible at {path}; /docs lists what is"
        case 400:
            return reply_to(request.scope, BadInput("the body cannot be read as JSON; send it as UTF-8"))
        case _:
            code, message = "bad_request", str(exc.detail)
    return error_reply(request.scope, exc.status_code, code, message, exc.headers)


def install(app: FastAPI, access: Access) -> None:
    app.add_exception_handler(HoldfastError, on_holdfast_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, partial(on_http_exception, access))
