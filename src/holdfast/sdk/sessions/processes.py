"""Programs in the background of a session."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.output import SILENCE_SECONDS, Chunk, Opening, chunk_of, follow
from holdfast.sdk.sessions.results import given, new_key, of_wire

RAW = "application/octet-stream"
WAIT_STEP_MS = 60_000
GRACE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process as it was when the daemon last told of it. ``exit_code`` is 128 + N after signal N."""

    process_id: str
    pid: int
    cmd: str
    pty: bool
    running: bool
    exit_code: int | None
    started_at: datetime
    ended_at: datetime | None
    output_bytes: int
    output_kept_from: int


class Process:
    """One background process. It lives in the sandbox: dropping this object changes nothing there."""

    def __init__(self, transport: Transport, session_path: str, info: ProcessInfo) -> None:
        self._transport = transport
        self._path = f"{session_path}/processes/{quote(info.process_id, safe='')}"
        self.info = info

    def __repr__(self) -> str:
        state = "running" if self.info.running else f"ended with {self.info.exit_code}"
        return f"<Process {self.id} {state}>"

    @property
    def id(self) -> str:
        return self.info.process_id

    @property
    def running(self) -> bool:
        """As last told; ``refresh`` asks again."""
        return self.info.running

    @property
    def exit_code(self) -> int | None:
        return self.info.exit_code

    async def refresh(self) -> ProcessInfo:
        return await self._look(0)

    async def wait(self, timeout_ms: int | None = None) -> ProcessInfo:
        """Return when it has ended, or when the time is over; ``running`` says which."""
        left = timeout_ms
        while True:
            step = WAIT_STEP_MS if left is None else min(left, WAIT_STEP_MS)
            info = await self._look(step)
            left = None if left is None else left - step
            if not info.running or (left is not None and left <= 0):
                return info

    async def _look(self, wait_ms: int) -> ProcessInfo:
        seconds = GRACE_SECONDS + wait_ms / 1000
        data = await self._transport.call("GET", self._path, params={"wait_ms": str(wait_ms)}, timeout=seconds)
        self.info = of_wire(ProcessInfo, data)
        return self.info

    async def output(self, offset: int = 0, *, max_bytes: int | None = None) -> list[Chunk]:
        """Read what it has written from ``offset`` on and is still kept; the last chunk's ``end`` is where to go on."""
        params = {"offset": str(offset)} if max_bytes is None else {"offset": str(offset), "max_bytes": str(max_bytes)}
        data = await self._transport.call("GET", self._path + "/output", params=params)
        self.info = of_wire(ProcessInfo, data["process"])
        return [chunk_of(one["stream"], one) for one in data["chunks"]]

    async def follow(self, offset: int = 0) -> AsyncGenerator[Chunk, None]:
        """Yield what it writes, as it writes it, until it ends. Cuts of the connection are not noticed."""

        def open_at(position: int) -> Opening:
            params = {"offset": str(position)}
            return self._transport.stream("GET", self._path + "/stream", params=params, timeout=SILENCE_SECONDS)

        async with aclosing(follow(open_at, offset)) as events:
            async for event in events:
                if isinstance(event, Chunk):
                    yield event
                elif event.kind == "exit":
                    self.info = of_wire(ProcessInfo, event.data)

    async def write(self, data: str | bytes, *, close: bool = False) -> None:
        """Write to its input; returns when its pipe has taken it."""
        body = data.encode() if isinstance(data, str) else data
        headers = {"Content-Type": RAW}
        params = {"close": "true"} if close else {}
        await self._transport.raw("POST", self._path + "/stdin", body, headers, params=params)

    async def close_stdin(self) -> None:
        """Let it see the end of its input."""
        await self.write(b"", close=True)

    async def signal(self, name: str = "TERM") -> None:
        """Send a signal to the process and all of its group."""
        await self._transport.call("POST", self._path + "/signal", json_body={"signal": name})

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal's window."""
        await self._transport.call("POST", self._path + "/resize", json_body={"rows": rows, "columns": columns})

    async def kill(self) -> None:
        """Kill it, and forget it with its output."""
        await self._transport.call("DELETE", self._path)


class Processes:
    """The background processes of one session."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._session_path = session_path

    async def start(
        self,
        cmd: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        pty: bool | tuple[int, int] = False,
        stdin: bool = False,
        idempotency_key: str | None = None,
    ) -> Process:
        """Start a line for bash, or a program with its arguments. ``pty``: a terminal, perhaps of (rows, columns)."""
        body: dict[str, Any] = {"cmd": cmd} if isinstance(cmd, str) else {"argv": list(cmd)}
        body |= given(env=env and dict(env), cwd=cwd, user=user, stdin=stdin or None)
        if pty:
            body["pty"] = {"rows": pty[0], "columns": pty[1]} if isinstance(pty, tuple) else True
        path = self._session_path + "/processes"
        key = idempotency_key or new_key()
        data = await self._transport.call("POST", path, json_body=body, idempotency_key=key)
        return Process(self._transport, self._session_path, of_wire(ProcessInfo, data))

    async def list(self) -> list[Process]:
        """List running processes, and the most recent of those that have ended."""
        data = await self._transport.call("GET", self._session_path + "/processes")
        infos = [of_wire(ProcessInfo, one) for one in data["processes"]]
        return [Process(self._transport, self._session_path, info) for info in infos]

    async def get(self, process_id: str) -> Process:
        path = f"{self._session_path}/processes/{quote(process_id, safe='')}"
        info = of_wire(ProcessInfo, await self._transport.call("GET", path))
        return Process(self._transport, self._session_path, info)
