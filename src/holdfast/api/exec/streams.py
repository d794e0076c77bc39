"""/v1/sessions/{id}/exec/stream and what goes with it: commands that are followed while they run."""

import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query
from pydantic import BaseModel
from starlette.responses import Response

from holdfast.api.exec.models import ExecEnd, ExecIn, ExecOut
from holdfast.api.wire.chunks import chunk_event
from holdfast.api.wire.common import ExecId, IdempotencyKey, SessionId
from holdfast.api.wire.pieces import JSON, PiecesReply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.sse import EventStream, ServerEvent
from holdfast.sessions.use.execs import Execs
from holdfast.sessions.use.follow import Attached, Chunk

T = TypeVar("T")

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


def router(commands: Execs) -> Routes:
    routes = Routes("exec")

    @routes.post(
        f"{SESSION}/exec/stream",
        "Run a command and follow it",
        scope=USE,
        fails=(*IN_SESSION, 413),
        responses=EVENTS,
    )
    async def run_command_streamed(session_id: SessionId, body: ExecIn, key: IdempotencyKey) -> Response:
        """Run a command and send its output as it is written.

        A client that disconnects does not stop the command. It can go on where it stopped: GET
        …/exec/{exec_id}/stream?offset=N.
        """
        exec_id = await commands.start(session_id, await body.request(), idempotency_key=key)
        followed = commands.follow(session_id, exec_id, offset=0)
        return await EventStream.begin(events_of(followed, {"exec_id": exec_id}, ExecEnd.of))

    @routes.get(
        f"{SESSION}/exec/{{exec_id}}/stream", "Follow a command", scope=READ, fails=IN_SESSION, responses=EVENTS
    )
    async def follow_command(
        session_id: SessionId, exec_id: ExecId, offset: Offset = 0, last_event_id: LastEventId = None
    ) -> Response:
        """Send a command's output from any offset that is still kept, also after its end and after a restart of the
        daemon."""
        followed = commands.follow(session_id, exec_id, offset=where_to_begin(offset, last_event_id))
        return await EventStream.begin(events_of(followed, {"exec_id": exec_id}, ExecEnd.of))

    @routes.post(f"{SESSION}/exec/{{exec_id}}/cancel", "End a command", scope=USE, returns=ExecOut, fails=IN_SESSION)
    async def cancel_command(session_id: SessionId, exec_id: ExecId) -> Response:
        """End all that the command started (INT, TERM, KILL) and nothing else; the shell lives on.

        Returns its result, with ``cancelled`` unless the command had ended before.
        """
        result = await commands.cancel(session_id, exec_id)
        return PiecesReply(await ExecOut.json_of(result), JSON)

    return routes


async def events_of(
    followed: AsyncGenerator[Attached | Chunk | T, None], name: dict[str, str], end: Callable[[T], BaseModel]
) -> AsyncGenerator[ServerEvent, None]:
    """Tell of what is followed: ``started`` with its name, its output, and ``exit`` with what ``end`` makes of its
    end."""
    async with contextlib.aclosing(followed):
        async for event in followed:
            match event:
                case Attached():
                    yield ServerEvent("started", json.dumps(name))
                case Chunk():
                    yield chunk_event(event)
                case result:
                    yield ServerEvent("exit", end(result).model_dump_json())
