"""/v1/sessions/{id}/processes: programs in the background."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from holdfast.api.exec.streams import EVENTS, LastEventId, Offset, where_to_begin
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
from holdfast.api.wire.chunks import ChunkOut, chunk_event
from holdfast.api.wire.common import IdempotencyKey, ProcessId, SessionId, failures, reply
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.sse import Event, EventStream
from holdfast.errors import BadInput
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import Processes

RAW = "application/octet-stream"
_INPUT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": ProcessInput.model_json_schema()},
            RAW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_PATH = "/v1/sessions/{session_id}/processes"


def router(processes: Processes) -> APIRouter:
    routes = APIRouter(tags=["processes"])

    @routes.post(
        _PATH,
        status_code=201,
        response_model=ProcessOut,
        responses=failures(403, 404, 409, 410, 413, 422, 502, 503),
        summary="Start a process",
    )
    async def start(session_id: SessionId, body: ProcessStart, key: IdempotencyKey) -> Response:
        """Runs beside the shell, for as long as it likes: it ends by itself, by a signal, or with the session."""
        view = await processes.start(session_id, body.request(), idempotency_key=key)
        return reply(ProcessOut.of(view), 201, {"Location": f"/v1/sessions/{session_id}/processes/{view.process_id}"})

    @routes.get(_PATH, response_model=ProcessList, responses=failures(404, 409, 410, 422, 502, 503), summary="List")
    async def list_(session_id: SessionId) -> Response:
        """Running ones, and the most recent of those that have ended."""
        views = await processes.list(session_id)
        return reply(ProcessList(processes=[ProcessOut.of(view) for view in views]))

    @routes.get(
        _PATH + "/{process_id}",
        response_model=ProcessOut,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Look at a process, or wait for its end",
    )
    async def get(
        session_id: SessionId,
        process_id: ProcessId,
        wait_ms: Annotated[int, Query(ge=0, le=MAX_WAIT_MS, description="How long to wait for its end")] = 0,
    ) -> Response:
        return reply(ProcessOut.of(await processes.get(session_id, process_id, wait_ms=wait_ms)))

    @routes.get(
        _PATH + "/{process_id}/output",
        response_model=ProcessOutput,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Read its output",
    )
    async def output(
        session_id: SessionId,
        process_id: ProcessId,
        offset: Offset = 0,
        max_bytes: Annotated[int, Query(ge=1, le=MAX_READ_BYTES)] = 1 << 20,
    ) -> Response:
        """What there is now, from an offset on; also after its end."""
        chunks, view = await processes.read(session_id, process_id, offset=offset, limit=max_bytes)
        following = chunks[-1].end if chunks else min(offset, view.written)
        rest = {"next_offset": following, "process": ProcessOut.of(view)}
        return await list_reply("chunks", map(ChunkOut.of, chunks), rest)

    @routes.get(
        _PATH + "/{process_id}/stream",
        response_class=Response,
        responses={**failures(404, 409, 410, 422, 502, 503), **EVENTS},
        summary="Follow its output",
    )
    async def stream(
        session_id: SessionId, process_id: ProcessId, offset: Offset = 0, last_event_id: LastEventId = None
    ) -> Response:
        begin = where_to_begin(offset, last_event_id)
        return await EventStream.begin(_events(processes, session_id, process_id, begin))

    @routes.post(
        _PATH + "/{process_id}/stdin",
        status_code=204,
        responses=failures(404, 409, 410, 413, 422, 502, 503),
        openapi_extra=_INPUT_BODY,
        summary="Write to its input",
    )
    async def stdin(
        session_id: SessionId,
        process_id: ProcessId,
        request: Request,
        close: Annotated[bool, Query(description="For raw bytes: then let it see the end of its input")] = False,
    ) -> Response:
        """JSON, or raw bytes as application/octet-stream. Returns when the process's pipe has taken it."""
        body = await request.body()
        if request.headers.get("content-type", "").partition(";")[0].strip() == RAW:
            data = body
        else:
            given = _input(body)
            data, close = _decoded(given), given.close
        await processes.write(session_id, process_id, data, close=close)
        return Response(status_code=204)

    @routes.post(
        _PATH + "/{process_id}/signal",
        status_code=204,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Send it a signal",
    )
    async def signal(session_id: SessionId, process_id: ProcessId, body: ProcessSignal) -> Response:
        """To the process and all of its group. One that has ended already is fine."""
        await processes.signal(session_id, process_id, body.signal)
        return Response(status_code=204)

    @routes.post(
        _PATH + "/{process_id}/resize",
        status_code=204,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Resize its terminal",
    )
    async def resize(session_id: SessionId, process_id: ProcessId, body: TerminalIn) -> Response:
        await processes.resize(session_id, process_id, body.size())
        return Response(status_code=204)

    @routes.delete(
        _PATH + "/{process_id}",
        status_code=204,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Kill and forget it",
    )
    async def remove(session_id: SessionId, process_id: ProcessId) -> Response:
        await processes.remove(session_id, process_id)
        return Response(status_code=204)

    return routes


def _input(body: bytes) -> ProcessInput:
    try:
        return ProcessInput.model_validate_json(body)
    except ValidationError as exc:
        raise RequestValidationError(exc.errors()) from None


def _decoded(given: ProcessInput) -> bytes:
    try:
        return given.data()
    except ValueError as exc:
        raise BadInput(f"base64: {exc}") from None


async def _events(processes: Processes, session_id: str, process_id: str, offset: int) -> AsyncGenerator[Event, None]:
    followed = processes.follow(session_id, process_id, offset=offset)
    async with contextlib.aclosing(followed):
        async for event in followed:
            match event:
                case Attached():
                    yield Event("started", json.dumps({"process_id": process_id}))
                case Chunk():
                    yield chunk_event(event)
                case view:
                    yield Event("exit", ProcessOut.of(view).model_dump_json())
