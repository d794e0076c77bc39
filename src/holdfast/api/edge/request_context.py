"""The outermost layer: every request gets an id, one log line and its metrics, and never sees a traceback."""

import asyncio
import os
import re
import time

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.edge.caller import caller_in
from holdfast.api.edge.failures import REQUEST_ID, error_reply, reply_to
from holdfast.api.edge.metrics import HttpMetrics
from holdfast.errors import Unavailable

CLIENT_LEFT = 499
"""Logged, never sent: the client went away before there was an answer."""

NO_ROUTE = "-"
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")


class RequestContext:
    """Pure ASGI middleware; the frameworks' own base class costs more than an exec request should."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = _request_id(scope)
        header = (b"x-request-id", request_id.encode())
        tokens = structlog.contextvars.bind_contextvars(request_id=request_id)
        began = time.perf_counter()
        status = 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        try:
            await self._app(scope, receive, tagged)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:  # by the server, which stops and has waited long enough
            if status:
                raise
            stopping = Unavailable("the daemon is stopping; ask again when it is back")
            await reply_to(scope, stopping)(scope, receive, tagged)
        except Exception:
            log.exception("unexpected error in a request", method=scope["method"], route=_route(scope))
            if status:  # half an answer is out: only a broken connection tells the client so
                raise
            message = "something went wrong in the daemon; its log has the details under this request id"
            await error_reply(scope, 500, "internal", message)(scope, receive, tagged)
        finally:
            seconds = time.perf_counter() - began
            self._finish(scope, status or CLIENT_LEFT, seconds)
            structlog.contextvars.reset_contextvars(**tokens)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One log line when it is over, with how it was closed."""
        request_id = scope[REQUEST_ID] = _request_id(scope)
        tokens = structlog.contextvars.bind_contextvars(request_id=request_id)
        began = time.perf_counter()
        closed = "client left"

        async def watched(message: Message) -> None:
            nonlocal closed
            if message["type"] == "websocket.http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            if message["type"] == "websocket.close":
                closed = str(message.get("code", 1000))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception:
            log.exception("unexpected error in a websocket", route=_route(scope))
            raise
        finally:
            caller = caller_in(scope)
            log.info(
                "websocket",
                route=_route(scope),
                closed=closed,
                duration_ms=round((time.perf_counter() - began) * 1000, 2),
                session_id=scope.get("path_params", {}).get("session_id"),
                key=caller.name if caller else None,
            )
            structlog.contextvars.reset_contextvars(**tokens)

    def _finish(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        caller = caller_in(scope)
        self._metrics.seen(scope["method"], route, status, seconds)
        log.info(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 2),
            session_id=scope.get("path_params", {}).get("session_id"),
            key=caller.name if caller else None,
        )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value).decode()
    return "req_" + os.urandom(8).hex()


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", NO_ROUTE)
