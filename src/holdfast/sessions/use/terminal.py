"""A terminal in a sandbox, spoken over a WebSocket of any kind.

Binary messages are what is typed and what appears. Text messages are JSON: the client may send ``{"resize": {"rows",
"columns"}}``; we send ``{"attached": {…}}`` first, ``{"dropped": N}`` where output is gone, and ``{"exit": {…}}`` when
the program has ended. A terminal is a process: it goes on when the client is gone, and another attaches to it by its
id, from any offset that is still kept.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.concurrency import until_one_ends
from holdfast.errors import BadInput
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import Attachment, Processes, ProcessRequest, ProcessView, TerminalSize

MOST_TEXT = 1000
"""Characters of a text message: all that is longer is binary."""
MOST_CELLS = 9999
_WRONG_TEXT = 'a text message must be {"resize": {"rows": R, "columns": C}}; send input as binary'

Describe = Callable[[ProcessView], dict[str, object]]
"""Returns a process as JSON."""


class TerminalSocket(Protocol):
    """Where the other end of the terminal is."""

    async def receive(self) -> bytes | str | None:
        """Return the next message; None at the end."""

    async def send_bytes(self, data: bytes) -> None: ...

    async def send_text(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class TerminalWish:
    """Which terminal: the one with ``process_id``, from ``offset`` on; else a new one, for which the rest is meant."""

    size: TerminalSize
    process_id: str | None = None
    offset: int = 0
    cmd: str | None = None
    cwd: str | None = None
    idempotency_key: str | None = None


async def serve_terminal(
    processes: Processes,
    session_id: str,
    wish: TerminalWish,
    socket: TerminalSocket,
    describe: Describe,
    on_input: Callable[[], None] = lambda: None,
) -> None:
    """Carry both directions of one terminal, until either end is done with it."""
    if wish.process_id is None:
        request = ProcessRequest(cmd=wish.cmd, cwd=wish.cwd, terminal=wish.size)
        view, offset = await processes.start(session_id, request, idempotency_key=wish.idempotency_key), wish.offset
    else:
        view = await _existing(processes, session_id, wish.process_id)
        offset = max(wish.offset, view.kept_from)
    attached = {"process_id": view.process_id, "offset": offset, "process": describe(view)}
    await socket.send_text(json.dumps({"attached": attached}))
    if wish.process_id is not None and view.running:
        await processes.resize(session_id, wish.process_id, wish.size)
    await _Conversation(processes, session_id, view.process_id, socket, describe, on_input).run(offset)


async def _existing(processes: Processes, session_id: str, process_id: str) -> ProcessView:
    view = await processes.get(session_id, process_id)
    if not view.terminal:
        raise BadInput(f"process {process_id} has no terminal; follow it at …/processes/{process_id}/stream")
    return view


class _Conversation:
    def __init__(
        self,
        processes: Processes,
        session_id: str,
        process_id: str,
        socket: TerminalSocket,
        describe: Describe,
        on_input: Callable[[], None],
    ) -> None:
        self._processes = processes
        self._session_id = session_id
        self._process_id = process_id
        self._socket = socket
        self._describe = describe
        self._on_input = on_input
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
                    await self._socket.send_text(json.dumps({"exit": self._describe(event)}))

    async def _type(self) -> None:
        """Send the program what the client types."""
        while (message := await self._socket.receive()) is not None:
            if isinstance(message, str):
                await self._attachment.resize(_size(message))
            elif message:
                self._on_input()
                await self._attachment.send(message)


def _size(text: str) -> TerminalSize:
    try:
        told = json.loads(text) if len(text) <= MOST_TEXT else None
    except (ValueError, RecursionError):
        told = None
    match told:
        case {"resize": {**cells}, **others} if not others and cells.keys() <= {"rows", "columns"}:
            return TerminalSize(_cells(cells.get("rows", 24)), _cells(cells.get("columns", 80)))
    raise BadInput(_WRONG_TEXT)


def _cells(number: object) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= MOST_CELLS:
        return number
    raise BadInput(_WRONG_TEXT)
