"""The outermost layer: every request gets an id, one log line and its metrics, and never sees a traceback."""

import asyncio
import os
import re
import time

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.edge.caller import caller_in
from holdfast.api.edge.failures import REQUEST_ID, error_reply, reply_to
from holdfast.errors import Unavailable

CLIENT_LEFT = 499
"""Logged, never sent: the client went away before there was an answer."""

NO_ROUTE = "-"
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")


BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Counts by route template, never by path: a caller must not be able to make new time series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self._requests = Counter("holdfast_http_requests", "HTTP requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "holdfast_http_request_seconds", "Time to answer", ("method", "route"), registry=registry, buckets=BUCKETS
        )

        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def seen(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "OTHER"
        series = self._series.get((method, route, status))
        if series is None:  # looking one up by its labels costs more than counting; there are as many as time series
            series = self._requests.labels(method, route, str(status)), self._seconds.labels(method, route)
            self._series[(method, route, status)] = series
        requests, duration = series
        requests.inc()
        duration.observe(seconds)


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
