"""/v1/sessions/{id}/exec/stream and what goes with it: commands that are followed while they run."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from holdfast.api.exec.models import ExecEnd, ExecIn, ExecOut
from holdfast.api.protocols import CommandService
from holdfast.api.wire.chunks import chunk_event
from holdfast.api.wire.common import ExecId, IdempotencyKey, SessionId, failures
from holdfast.api.wire.pieces import JSON, PiecesReply
from holdfast.api.wire.sse import Event, EventStream
from holdfast.sessions.use.follow import Attached, Chunk

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `started`, then `stdout` and `stderr`, at last `exit`, or `error`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
Offset = Annotated[int, Query(ge=0, le=2**62, description="Where to begin in all output together")]
LastEventId = Annotated[str | None, Header(description="As browsers send it; wins over offset")]


def where_to_begin(offset: int, last_event_id: str | None) -> int:
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
        return min(int(last_event_id[:18]), 2**62)
    return offset


def router(commands: CommandService) -> APIRouter:
    routes = APIRouter(tags=["exec"])

    @routes.post(
        "/v1/sessions/{session_id}/exec/stream",
        response_class=Response,
        responses={**failures(404, 409, 410, 413, 422, 502, 503), **EVENTS},
        summary="Run a command and follow it",
    )
    async def run(session_id: SessionId, body: ExecIn, key: IdempotencyKey) -> Response:
        """Output arrives as it is written. A client that disconnects does not stop the command: it goes on
        where it stopped with GET …/exec/{exec_id}/stream?offset=N."""
        exec_id = await commands.start(session_id, body.request(), idempotency_key=key)
        return await EventStream.begin(_events(commands, session_id, exec_id, 0))

    @routes.get(
        "/v1/sessions/{session_id}/exec/{exec_id}/stream",
        response_class=Response,
        responses={**failures(404, 409, 410, 422, 502, 503), **EVENTS},
        summary="Follow a command",
    )
    async def follow(
        session_id: SessionId, exec_id: ExecId, offset: Offset = 0, last_event_id: LastEventId = None
    ) -> Response:
        """From any offset that is still kept, also after its end and after a restart of the daemon."""
        begin = where_to_begin(offset, last_event_id)
        return await EventStream.begin(_events(commands, session_id, exec_id, begin))

    @routes.post(
        "/v1/sessions/{session_id}/exec/{exec_id}/cancel",
        response_model=ExecOut,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="End a command",
    )
    async def cancel(session_id: SessionId, exec_id: ExecId) -> Response:
        """Ends all that the command started (INT, TERM, KILL) and nothing else; the shell lives on. Returns its
        result, with ``cancelled`` unless it had ended before."""
        result = await commands.cancel(session_id, exec_id)
        return PiecesReply(await ExecOut.json_of(result), JSON)

    return routes


async def _events(commands: CommandService, session_id: str, exec_id: str, offset: int) -> AsyncGenerator[Event, None]:
    followed = commands.follow(session_id, exec_id, offset=offset)
    async with contextlib.aclosing(followed):
        async for event in followed:
            match event:
                case Attached():
                    yield Event("started", json.dumps({"exec_id": exec_id}))
                case Chunk():
                    yield chunk_event(event)
                case result:
                    yield Event("exit", ExecEnd.of(result).model_dump_json())
