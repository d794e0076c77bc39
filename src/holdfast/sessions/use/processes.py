"""Programs in the background of a session: started, followed, written to, signalled, asked about after their end."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ProtocolError
from holdfast.link.streams import send_frame
from holdfast.protocol import frames
from holdfast.protocol.messages import MOST_SEGMENTS
from holdfast.sessions.ids import new_process_id, process_id_for
from holdfast.sessions.session import Session
from holdfast.sessions.use.follow import Attached, Chunk, End, follow
from holdfast.sessions.use.using import AwakeOnly, Using

CALL_SECONDS = 30.0
INPUT_SECONDS = 60.0
OUTPUT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TerminalSize:
    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """``cmd`` is a line for bash, ``argv`` a program and its arguments; neither: an interactive bash."""

    cmd: str | None = None
    argv: Sequence[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    terminal: TerminalSize | None = None
    stdin: bool = False
    output_bytes: int = OUTPUT_BYTES
    """How much of its output the runner keeps: the newest. It counts as the sandbox's memory."""
    told_of_cuts: str | None = None
    """Among its stderr there is ``protocol.messages.CUT`` where a daemon died and its callers reached the next; and
    what is told to all that have this same tag."""
    whole_group: bool = False
    """When it ends, what it has left of its group is killed, so that the next one finds its ports free."""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process as it is now. ``written`` counts all bytes of output; those before ``kept_from`` are gone."""

    process_id: str
    pid: int
    cmd: str
    terminal: bool
    running: bool
    exit_code: int | None
    started_at: float
    ended_at: float | None
    written: int
    kept_from: int
    input_bytes: int | None = None
    """How much its stdin has taken, ever; None where the runner is of an older version and does not tell."""


class Attachment:
    """The way into an attached process. What cannot be delivered, because it is being re-attached, waits."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._ready = asyncio.Event()

    def attached(self, writer: asyncio.StreamWriter | None) -> None:
        self._writer = writer
        if writer is None:
            self._ready.clear()
        else:
            self._ready.set()

    async def send(self, data: bytes) -> None:
        await self._tell({}, data)

    async def resize(self, size: TerminalSize) -> None:
        await self._tell({"resize": [size.rows, size.columns]})

    async def _tell(self, header: frames.Header, body: bytes = b"") -> None:
        await self._ready.wait()
        if self._writer is not None:
            await send_frame(self._writer, header, body)


class Processes:
    """Processes of this node's sessions."""

    def __init__(self, using: Using) -> None:
        self._using = using
        self._told: dict[str, int] = {}

    def awake_only(self) -> "Processes":
        """Return the same for who may not wake a session, nor keep it awake."""
        return Processes(AwakeOnly(self._using))

    async def start(self, session_id: str, request: ProcessRequest, *, idempotency_key: str | None) -> ProcessView:
        process_id = process_id_for(session_id, idempotency_key) if idempotency_key else new_process_id()
        return _view(await self._ask(session_id, "proc.start", _start_fields(process_id, request)))

    async def list(self, session_id: str) -> list[ProcessView]:
        return _views(await self._ask(session_id, "proc.list", {}))

    async def get(self, session_id: str, process_id: str, *, wait_ms: int = 0) -> ProcessView:
        """As it is now; with ``wait_ms``, as it is at its end or after that time."""
        fields: frames.Header = {"process_id": process_id, "wait_ms": wait_ms}
        return _view(await self._ask(session_id, "proc.get", fields, CALL_SECONDS + wait_ms / 1000))

    async def read(
        self, session_id: str, process_id: str, *, offset: int, limit: int
    ) -> tuple[Sequence[Chunk], ProcessView]:
        """At most ``limit`` bytes of output from ``offset`` on, or from the oldest that is kept."""
        fields: frames.Header = {"process_id": process_id, "offset": offset, "limit": limit}
        header, body = await self._using.call(session_id, "proc.read", fields, timeout=CALL_SECONDS)
        return _chunks(header, body, offset), _view(header)

    async def follow(
        self, session_id: str, process_id: str, *, offset: int, attachment: Attachment | None = None
    ) -> AsyncGenerator[Attached | Chunk | ProcessView, None]:
        """Output from ``offset`` on, as it is written; at last the process as it ended."""
        attachment = attachment or Attachment()
        async with self._using.use(session_id) as session:
            events = follow(session.link, "proc.attach", {"process_id": process_id}, offset, attachment.attached)
            async with contextlib.aclosing(events):
                async for event in events:
                    yield _view(event.told) if isinstance(event, End) else event

    async def write(self, session_id: str, process_id: str, data: bytes, *, close: bool) -> None:
        """Returns when the process's pipe has taken it; ``close`` lets the process see the end of its input."""
        # The link repeats a call that was cut; the runner takes what has one name once.
        fields: frames.Header = {"process_id": process_id, "eof": close, "write_id": secrets.token_hex(8)}
        await self._using.call(session_id, "proc.input", fields, data, timeout=INPUT_SECONDS)

    async def signal(self, session_id: str, process_id: str, name: str) -> None:
        signal = name.upper()
        signal = signal if signal.startswith("SIG") else f"SIG{signal}"
        await self._ask(session_id, "proc.signal", {"process_id": process_id, "signal": signal})

    async def resize(self, session_id: str, process_id: str, size: TerminalSize) -> None:
        await self._ask(session_id, "proc.resize", {"process_id": process_id, "size": _size(size)})

    async def remove(self, session_id: str, process_id: str) -> None:
        """Kill it, if it runs, and forget it with its output."""
        await self._ask(session_id, "proc.remove", {"process_id": process_id})

    async def tell(self, session_id: str, tag: str, word: bytes) -> None:
        """Into the stderr of all processes that are ``told_of_cuts`` by that tag. Should the link repeat it, twice."""
        await self._using.call(session_id, "proc.tell", {"tag": tag}, word, timeout=CALL_SECONDS)
        self._told[session_id] = self.told(session_id) + 1

    def told(self, session_id: str) -> int:
        """Return the number of words that this daemon has sent."""
        return self._told.get(session_id, 0)

    async def _ask(
        self, session_id: str, op: str, fields: frames.Header, seconds: float = CALL_SECONDS
    ) -> frames.Header:
        return (await self._using.call(session_id, op, fields, timeout=seconds))[0]


class Background:
    """Calls on the processes of a session that is at hand. They do not count as a use of it, and do not wake it."""

    @staticmethod
    async def start(session: Session, process_id: str, request: ProcessRequest) -> ProcessView:
        """Start a process with this id; if one with this id runs already, or has ended, return that one."""
        return _view(await _call(session, "proc.start", _start_fields(process_id, request)))

    @staticmethod
    async def list(session: Session) -> list[ProcessView]:
        return _views(await _call(session, "proc.list", {}))

    @staticmethod
    async def get(session: Session, process_id: str, *, wait_ms: int = 0) -> ProcessView:
        fields: frames.Header = {"process_id": process_id, "wait_ms": wait_ms}
        return _view(await _call(session, "proc.get", fields, CALL_SECONDS + wait_ms / 1000))

    @staticmethod
    async def tail(session: Session, view: ProcessView, most: int) -> bytes:
        """Return the last bytes of its output, of both streams together."""
        offset = max(view.written - most, view.kept_from)
        fields: frames.Header = {"process_id": view.process_id, "offset": offset, "limit": most}
        header, body = await session.link.call("proc.read", fields, timeout=CALL_SECONDS)
        return b"".join(chunk.data for chunk in _chunks(header, body, offset))

    @staticmethod
    async def signal(session: Session, process_id: str, signal: str) -> None:
        await _call(session, "proc.signal", {"process_id": process_id, "signal": signal})

    @staticmethod
    async def remove(session: Session, process_id: str) -> None:
        await _call(session, "proc.remove", {"process_id": process_id})


async def _call(session: Session, op: str, fields: frames.Header, seconds: float = CALL_SECONDS) -> frames.Header:
    return (await session.link.call(op, fields, timeout=seconds))[0]


def _start_fields(process_id: str, request: ProcessRequest) -> frames.Header:
    return {
        "process_id": process_id,
        "cmd": request.cmd,
        "argv": None if request.argv is None else list(request.argv),
        "env": dict(request.env),
        "cwd": request.cwd,
        "user": request.user,
        "size": _size(request.terminal),
        "input": request.stdin,
        "limit": request.output_bytes,
        **({"told_of_cuts": request.told_of_cuts} if request.told_of_cuts else {}),
        **({"whole_group": True} if request.whole_group else {}),
    }


def _views(header: frames.Header) -> list[ProcessView]:
    listed = header.get("processes")
    if not isinstance(listed, list):
        raise ProtocolError("the runner sent a list of processes that is none")
    return [_view(one) for one in listed]


def _size(size: TerminalSize | None) -> list[int] | None:
    return None if size is None else [size.rows, size.columns]


def _chunks(header: frames.Header, body: bytes, asked: int) -> list[Chunk]:
    """Return the runner's words, checked: it lives in the sandbox and may be anything by now."""
    start, pieces = header.get("offset"), header.get("pieces")
    if not isinstance(start, int) or not isinstance(pieces, list):
        raise ProtocolError("the runner sent output that makes no sense")
    chunks: list[Chunk] = []
    offset = start
    at = 0
    for piece in pieces[: MOST_SEGMENTS + 1]:
        match piece:
            case [0 | 1 as stream, int(length)] if 0 <= length <= len(body) - at and len(chunks) < MOST_SEGMENTS:
                data = body[at : at + length]
                chunks.append(Chunk(stream, offset, data, max(start - asked, 0) if not chunks else 0))
                offset += length
                at += length
            case _:
                raise ProtocolError("the runner sent output that makes no sense")
    return chunks


_TOLD_AS_THEY_ARE = (
    *("process_id", "pid", "terminal", "running", "exit_code"),
    *("started_at", "ended_at", "written", "kept_from"),
)


def _view(told: Any) -> ProcessView:
    match told:
        case {
            "process_id": str(),
            "pid": int(),
            "label": str(label),
            "terminal": bool(),
            "running": bool(),
            "exit_code": int() | None,
            "started_at": int() | float(),
            "ended_at": int() | float() | None,
            "written": int(),
            "kept_from": int(),
        }:
            taken, clean = told.get("input"), label.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            named = {name: told[name] for name in _TOLD_AS_THEY_ARE}
            return ProcessView(**named, cmd=clean, input_bytes=taken if isinstance(taken, int) else None)
    raise ProtocolError("the runner described a process in words that make no sense")
