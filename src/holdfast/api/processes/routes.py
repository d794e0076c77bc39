"""/v1/sessions/{id}/processes: programs in the background."""

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from holdfast.api.edge.json_load import load_json
from holdfast.api.exec.streams import EVENTS, LastEventId, Offset, events_of, where_to_begin
from holdfast.api.files.part_reply import BYTES, RAW
from holdfast.api.processes.models import (
    MAX_READ_BYTES,
    MAX_WAIT_MS,
    ProcessInput,
    ProcessList,
    ProcessOut,
    ProcessOutput,
    ProcessSignal,
    ProcessStart,
    TerminalIn,
)
from holdfast.api.wire.chunks import ChunkOut
from holdfast.api.wire.common import IdempotencyKey, ProcessId, SessionId, reply
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.sse import EventStream
from holdfast.errors import BadInput
from holdfast.sessions.use.processes import Processes

_INPUT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": ProcessInput.model_json_schema()},
            RAW: BYTES,
        },
    }
}
_PATH = f"{SESSION}/processes"
_ONE = f"{_PATH}/{{process_id}}"


def router(processes: Processes) -> Routes:
    routes = Routes("processes")

    @routes.post(_PATH, "Start a process", scope=USE, returns=ProcessOut, status=201, fails=(*IN_SESSION, 403, 413))
    async def start_process(session_id: SessionId, body: ProcessStart, key: IdempotencyKey) -> Response:
        """Start a program beside the shell. It runs until it ends by itself, by a signal, or with the session."""
        view = await processes.start(session_id, body.request(), idempotency_key=key)
        return reply(ProcessOut.of(view), 201, {"Location": f"/v1/sessions/{session_id}/processes/{view.process_id}"})

    @routes.get(_PATH, "List", scope=READ, returns=ProcessList, fails=IN_SESSION)
    async def list_processes(session_id: SessionId) -> Response:
        """List the processes that run, and the most recent of those that have ended."""
        views = await processes.list(session_id)
        return reply(ProcessList(processes=[ProcessOut.of(view) for view in views]))

    @routes.get(_ONE, "Look at a process, or wait for its end", scope=READ, returns=ProcessOut, fails=IN_SESSION)
    async def get_process(
        session_id: SessionId,
        process_id: ProcessId,
        wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS, description="How long to wait for its end")] = 0,
    ) -> Response:
        return reply(ProcessOut.of(await processes.get(session_id, process_id, wait_ms=wait_ms)))

    @routes.get(f"{_ONE}/output", "Read its output", scope=READ, returns=ProcessOutput, fails=IN_SESSION)
    async def read_process_output(
        session_id: SessionId,
        process_id: ProcessId,
        offset: Offset = 0,
        max_bytes: Annotated[int, Query(ge=1, le=MAX_READ_BYTES)] = 1 << 20,
    ) -> Response:
        """Return what a process has written by now, from an offset on. This works after its end, too."""
        chunks, view = await processes.read(session_id, process_id, offset=offset, limit=max_bytes)
        following = chunks[-1].end if chunks else min(offset, view.written)
        rest = {"next_offset": following, "process": ProcessOut.of(view)}
        return await list_reply("chunks", map(ChunkOut.of, chunks), rest)

    @routes.get(f"{_ONE}/stream", "Follow its output", scope=READ, fails=IN_SESSION, responses=EVENTS)
    async def follow_process(
        session_id: SessionId, process_id: ProcessId, offset: Offset = 0, last_event_id: LastEventId = None
    ) -> Response:
        followed = processes.follow(session_id, process_id, offset=where_to_begin(offset, last_event_id))
        return await EventStream.begin(events_of(followed, {"process_id": process_id}, ProcessOut.of))

    @routes.post(
        f"{_ONE}/stdin", "Write to its input", scope=USE, status=204, fails=(*IN_SESSION, 413), extra=_INPUT_BODY
    )
    async def write_process_stdin(
        session_id: SessionId,
        process_id: ProcessId,
        request: Request,
        close: Annotated[bool, Query(description="For raw bytes: then let it see the end of its input")] = False,
    ) -> Response:
        """Write JSON, or raw bytes as application/octet-stream. Returns when the process's pipe has taken it."""
        body = await request.body()
        if request.headers.get("content-type", "").partition(";")[0].strip() == RAW:
            data = body
        else:
            given = await _input(body)
            data, close = await _decoded(given), given.close
        await processes.write(session_id, process_id, data, close=close)
        return Response(status_code=204)

    @routes.post(f"{_ONE}/signal", "Send it a signal", scope=USE, status=204, fails=IN_SESSION)
    async def signal_process(session_id: SessionId, process_id: ProcessId, body: ProcessSignal) -> Response:
        """Send a signal to the process and all of its group. A process that has ended already is no error."""
        await processes.signal(session_id, process_id, body.signal)
        return Response(status_code=204)

    @routes.post(f"{_ONE}/resize", "Resize its terminal", scope=USE, status=204, fails=IN_SESSION)
    async def resize_process(session_id: SessionId, process_id: ProcessId, body: TerminalIn) -> Response:
        await processes.resize(session_id, process_id, body.size())
        return Response(status_code=204)

    @routes.delete(_ONE, "Kill and forget it", scope=USE, fails=IN_SESSION)
    async def remove_process(session_id: SessionId, process_id: ProcessId) -> Response:
        await processes.remove(session_id, process_id)
        return Response(status_code=204)

    return routes


async def _input(body: bytes) -> ProcessInput:
    try:
        return ProcessInput.model_validate(await load_json(body))
    except ValidationError as exc:
        raise RequestValidationError(exc.errors()) from None
    except ValueError:
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body",), "msg": "not JSON"}]) from None


async def _decoded(given: ProcessInput) -> bytes:
    try:
        return await given.data()
    except ValueError as exc:
        raise BadInput(f"base64: {exc}") from None
