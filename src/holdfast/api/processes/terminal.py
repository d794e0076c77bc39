"""/v1/sessions/{id}/terminal: a terminal in the sandbox, by WebSocket.

Binary messages are what is typed and what appears. Text messages are JSON: the client may send ``{"resize": {"rows",
"columns"}}``; the daemon sends ``{"attached": {…}}`` first, ``{"dropped": N}`` where output is gone, ``{"exit": {…}}``
when the program has ended, and ``{"error": {…}}`` when something else has. A terminal is a process: it goes on when the
client is gone, and another attaches to it by its id, from any offset that is still kept.
"""

import contextlib
import json
from typing import Annotated

from fastapi import Query, WebSocket

from holdfast.api.processes.models import ProcessOut, TerminalIn
from holdfast.api.wire.common import checked_session_id
from holdfast.api.wire.models import Request
from holdfast.api.wire.routes import SESSION, USE, Routes
from holdfast.api.wire.websockets import accepted
from holdfast.concurrency import until_one_ends
from holdfast.errors import BadInput
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import Attachment, Processes, ProcessRequest, ProcessView, TerminalSize

MOST_TEXT = 1000
"""Characters of a text message: all that is longer is binary."""


class _Told(Request):
    """A text message from the client."""

    resize: TerminalIn


def router(processes: Processes) -> Routes:
    routes = Routes("processes")

    @routes.websocket(f"{SESSION}/terminal", scope=USE)
    async def terminal(
        socket: WebSocket,
        session_id: str,
        process_id: str | None = None,
        offset: Annotated[int, Query(ge=0)] = 0,
        rows: Annotated[int, Query(ge=1, le=9999)] = 24,
        columns: Annotated[int, Query(ge=1, le=9999)] = 80,
        cmd: str | None = None,
        cwd: str | None = None,
    ) -> None:
        """Open a new terminal with ``cmd`` (default: an interactive bash), or the one with ``process_id``."""
        async with accepted(socket):
            session_id = checked_session_id(session_id)
            size = TerminalSize(rows, columns)
            if process_id is None:
                view = await processes.start(
                    session_id, ProcessRequest(cmd=cmd, cwd=cwd, terminal=size), idempotency_key=None
                )
            else:
                view = await _existing(processes, session_id, process_id)
                offset = max(offset, view.kept_from)
            await socket.send_text(_attached(view, offset))
            if process_id is not None and view.running:
                await processes.resize(session_id, process_id, size)
            await _Conversation(socket, processes, session_id, view.process_id).run(offset)

    return routes


async def _existing(processes: Processes, session_id: str, process_id: str) -> ProcessView:
    view = await processes.get(session_id, process_id)
    if not view.terminal:
        raise BadInput(f"process {process_id} has no terminal; follow it at …/processes/{process_id}/stream")
    return view


def _attached(view: ProcessView, offset: int) -> str:
    process = ProcessOut.of(view).model_dump(mode="json")
    return json.dumps({"attached": {"process_id": view.process_id, "offset": offset, "process": process}})


class _Conversation:
    """Both directions of one terminal, until either end is done with it."""

    def __init__(self, socket: WebSocket, processes: Processes, session_id: str, process_id: str) -> None:
        self._socket = socket
        self._processes = processes
        self._session_id = session_id
        self._process_id = process_id
        self._attachment = Attachment()

    async def run(self, offset: int) -> None:
        await until_one_ends(self._show(offset), self._type())

    async def _show(self, offset: int) -> None:
        """Send the client what the program writes."""
        followed = self._processes.follow(
            self._session_id, self._process_id, offset=offset, attachment=self._attachment
        )
        async with contextlib.aclosing(followed):
            async for event in followed:
                if isinstance(event, Attached):
                    continue
                if isinstance(event, Chunk):
                    if event.dropped:
                        await self._socket.send_text(json.dumps({"dropped": event.dropped}))
                    await self._socket.send_bytes(event.data)
                else:
                    ended = ProcessOut.of(event).model_dump(mode="json")
                    await self._socket.send_text(json.dumps({"exit": ended}))

    async def _type(self) -> None:
        """Send the program what the client types."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("bytes"):
                await self._attachment.send(message["bytes"])
            elif message.get("text"):
                await self._attachment.resize(_size(message["text"]))


def _size(text: str) -> TerminalSize:
    try:
        if len(text) > MOST_TEXT:
            raise ValueError("too long")
        return _Told.model_validate_json(text).resize.size()
    except ValueError:  # a ValidationError is one
        raise BadInput('a text message must be {"resize": {"rows": R, "columns": C}}; send input as binary') from None
