"""The WebSocket of the page ``terminal``: as that of the API, but it wakes no session and keeps none awake."""

import asyncio
import json
import re
from collections.abc import Mapping

from holdfast.errors import BadRequest
from holdfast.gateway.views.socket import OwnSocket
from holdfast.gateway.views.stay import Stay
from holdfast.sessions.use.processes import Processes, ProcessView, TerminalSize
from holdfast.sessions.use.terminal import MOST_CELLS, TerminalWish, serve_terminal

_PROCESS_ID = re.compile(r"prc_[0-9a-z]{26}")
_KEY = re.compile(r"[0-9A-Za-z_-]{8,64}")
AHEAD_BYTES = 1 << 20
"""So much output may be on its way to the screen: a page takes whatever comes, and cannot hold all of it."""
_MOST_WORDS = 100


class TerminalFeed:
    def __init__(self, processes: Processes) -> None:
        self._processes = processes.awake_only()

    async def serve(self, stay: Stay) -> None:
        """Carry one terminal. The page names it by a key of its own at first: should its connection be cut before it
        knows the process, it finds the same again."""
        wish = terminal_wish(stay.query)
        await serve_terminal(self._processes, stay.session.id, wish, _Paced(stay.socket), _describe, stay.on_activity)


class _Paced:
    """Sends no more than the page can show: it says ``{"taken": N}``, the bytes so far that are on its screen."""

    def __init__(self, socket: OwnSocket) -> None:
        self._socket = socket
        self._sent = 0
        self._taken = 0
        self._room = asyncio.Event()
        self.send_text = socket.send_text

    async def send_bytes(self, data: bytes) -> None:
        while self._sent - self._taken >= AHEAD_BYTES:
            self._room.clear()
            await self._room.wait()
        self._sent += len(data)
        await self._socket.send_bytes(data)

    async def receive(self) -> bytes | str | None:
        while True:
            message = await self._socket.receive()
            taken = _taken(message) if isinstance(message, str) else None
            if taken is None:
                return message
            self._taken = max(self._taken, min(taken, self._sent))
            self._room.set()


def _taken(text: str) -> int | None:
    try:
        told = json.loads(text) if len(text) <= _MOST_WORDS else None
    except ValueError:
        return None
    match told:
        case {"taken": int(taken)}:
            return taken
    return None


def terminal_wish(query: Mapping[str, str]) -> TerminalWish:
    """Return what a page asks for: one of ``process`` and ``key``. Raises ``BadRequest``."""
    size = TerminalSize(_number(query, "rows", 24, 1), _number(query, "columns", 80, 1))
    offset, process_id, key = _number(query, "offset", 0, 0, 1 << 53), query.get("process"), query.get("key")
    if process_id is not None:
        if not _PROCESS_ID.fullmatch(process_id):
            raise BadRequest("process: must be the id of a process")
        return TerminalWish(size, process_id, offset)
    if key is None or not _KEY.fullmatch(key):
        raise BadRequest("key: must be 8 to 64 of a-z, A-Z, 0-9, - and _")
    return TerminalWish(size, idempotency_key=f"gateway terminal {key}")


def _number(query: Mapping[str, str], name: str, default: int, least: int, most: int = MOST_CELLS) -> int:
    text = query.get(name, str(default))
    if text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most:
        return int(text)
    raise BadRequest(f"{name}: must be a number from {least} to {most}")


def _describe(view: ProcessView) -> dict[str, object]:
    return {
        "process_id": view.process_id,
        "running": view.running,
        "exit_code": view.exit_code,
        "output_bytes": view.written,
        "output_kept_from": view.kept_from,
    }
