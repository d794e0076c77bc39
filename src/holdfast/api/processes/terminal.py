"""/v1/sessions/{id}/terminal: a terminal in the sandbox, by WebSocket.

What is said is in ``sessions.use.terminal``; besides, ``{"error": {…}}`` is sent when something has gone wrong.
"""

from typing import Annotated

from fastapi import Query, WebSocket

from holdfast.api.processes.models import ProcessOut
from holdfast.api.wire.common import checked_session_id
from holdfast.api.wire.routes import SESSION, USE, Routes
from holdfast.api.wire.websockets import accepted
from holdfast.sessions.use.processes import Processes, ProcessView, TerminalSize
from holdfast.sessions.use.terminal import MOST_CELLS, TerminalWish, serve_terminal

Cells = Annotated[int, Query(ge=1, le=MOST_CELLS)]


def router(processes: Processes) -> Routes:
    routes = Routes("processes")

    @routes.websocket(f"{SESSION}/terminal", scope=USE)
    async def terminal(
        socket: WebSocket,
        session_id: str,
        process_id: str | None = None,
        offset: Annotated[int, Query(ge=0)] = 0,
        rows: Cells = 24,
        columns: Cells = 80,
        cmd: str | None = None,
        cwd: str | None = None,
    ) -> None:
        """Open a new terminal with ``cmd`` (default: an interactive bash), or the one with ``process_id``."""
        async with accepted(socket):
            wish = TerminalWish(TerminalSize(rows, columns), process_id, offset, cmd, cwd)
            await serve_terminal(processes, checked_session_id(session_id), wish, _Socket(socket), _describe)

    return routes


def _describe(view: ProcessView) -> dict[str, object]:
    return ProcessOut.of(view).model_dump(mode="json")


class _Socket:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self.send_bytes = socket.send_bytes
        self.send_text = socket.send_text

    async def receive(self) -> bytes | str | None:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        return message.get("bytes") or message.get("text") or b""
