"""Server-sent events: a reply that goes on for as long as there is something to tell and somebody who listens."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.edge.failures import REQUEST_ID, ErrorBody, ErrorReply
from holdfast.api.wire.streaming import while_connected
from holdfast.concurrency import next_or_silence
from holdfast.errors import HoldfastError

KEEP_ALIVE_SECONDS = 15.0
_KEEP_ALIVE = b": keep-alive\n\n"

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``data`` is one line, JSON as a rule. ``id`` is where a client that was cut off goes on (Last-Event-ID)."""

    kind: str
    data: str | bytes
    id: str | None = None

    def encode(self) -> bytes:
        head = f"event: {self.kind}\n" if self.id is None else f"event: {self.kind}\nid: {self.id}\n"
        data = self.data.encode() if isinstance(self.data, str) else self.data
        return b"%bdata: %b\n\n" % (head.encode(), data)


class EventStream(Response):
    """Sends events as they come, and a comment now and then while there is none.

    ``begin`` awaits the first event before the reply begins, so that a failure up to there is an ordinary error reply;
    a later one is told as a last event ``error``. When the client goes away the generator is closed at once.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[ServerEvent, None]) -> None:
        super().__init__(None)
        self._events = events
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"

    @classmethod
    async def begin(cls, events: AsyncGenerator[ServerEvent, None]) -> "EventStream":
        """Run up to the first event, or to the end."""
        try:
            first = await anext(events, None)
        except BaseException:
            await events.aclose()
            raise
        return cls(_preceded(first, events))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._events):
            await while_connected(receive, self._send_all(scope, send))

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for event in next_or_silence(self._events, KEEP_ALIVE_SECONDS):
                body = _KEEP_ALIVE if event is None else event.encode()
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except HoldfastError as error:
            log.warning("stream failed", code=error.code, error=error.message)
            told = error_event(error, scope.get(REQUEST_ID, ""))
            await send({"type": "http.response.body", "body": told.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def error_event(error: HoldfastError, request_id: str) -> ServerEvent:
    body = ErrorReply(error=ErrorBody(code=error.code, message=error.message, request_id=request_id))
    return ServerEvent("error", body.model_dump_json())


async def _preceded(
    first: ServerEvent | None, rest: AsyncGenerator[ServerEvent, None]
) -> AsyncGenerator[ServerEvent, None]:
    async with contextlib.aclosing(rest):
        if first is not None:
            yield first
            async for event in rest:
                yield event
