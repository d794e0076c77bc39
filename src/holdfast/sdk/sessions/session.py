"""A session, as the caller holds it: its last known state and what can be done with it."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Self
from urllib.parse import quote

from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.copies import SnapshotInfo
from holdfast.sdk.sessions.exec_stream import ExecStream
from holdfast.sdk.sessions.files import Files
from holdfast.sdk.sessions.gateway import Links, Tunnels
from holdfast.sdk.sessions.ports import Ports
from holdfast.sdk.sessions.processes import Processes
from holdfast.sdk.sessions.results import ExecResult, SessionInfo, SessionStats, given, new_key, of_wire
from holdfast.sdk.sessions.services import Services
from holdfast.sdk.sessions.terminal import Terminal, open_terminal

RAW = "application/octet-stream"
"""Files travel as they are: base64 inside JSON would cost a third of the size and most of the time."""

DEFAULT_EXEC_MS = 600_000
"""How long to wait for a command without ``timeout_ms``: the daemon ends it, at its own maximum."""

EXEC_GRACE_SECONDS = 150.0
"""Added to a command's own time: commands of one session take turns, so it may first wait for another."""


def patience(timeout_ms: int | None) -> float:
    """Return how many seconds to wait for an exec: as long as the command may take, and no longer."""
    return max(DEFAULT_EXEC_MS if timeout_ms is None else timeout_ms, 0) / 1000 + EXEC_GRACE_SECONDS


class Session:
    """One sandbox. As an async context manager it is destroyed at the end of the block."""

    def __init__(self, transport: Transport, info: SessionInfo) -> None:
        self._transport = transport
        self._path = f"/v1/sessions/{quote(info.id, safe='')}"
        self.info = info
        self.processes = Processes(transport, self._path)
        self.ports = Ports(transport, self._path)
        self.links = Links(transport, self._path)
        self.tunnels = Tunnels(transport, self._path)
        self.services = Services(transport, self._path)
        self.files = Files(transport, self._path)

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        """As last told; ``refresh`` asks again."""
        return self.info.status

    async def exec(
        self,
        cmd: str,
        *,
        timeout_ms: int | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shell: str | None = None,
        idempotency_key: str | None = None,
    ) -> ExecResult:
        """Run a command in the session's shell and wait for its end.

        ``cd``, variables and functions stay for the next command; ``env`` and ``cwd`` hold for this one only.
        A command that fails or times out is a result, not an exception. If the connection breaks, the call is
        repeated under the same key, which gives the result of the first one.
        """
        variables = env and dict(env)
        body = given(cmd=cmd, timeout_ms=timeout_ms, stdin=stdin, env=variables, cwd=cwd, shell=shell)
        data = await self._transport.call(
            "POST",
            self._path + "/exec",
            json_body=body,
            idempotency_key=idempotency_key or new_key(),
            timeout=patience(timeout_ms),
        )
        return of_wire(ExecResult, data)

    def exec_stream(
        self,
        cmd: str,
        *,
        timeout_ms: int | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shell: str | None = None,
        idempotency_key: str | None = None,
    ) -> ExecStream:
        """Run a command and follow it: iterate over what it writes, as it writes it; then ``result`` says how it ended.

        A cut of the connection, or a restart of the daemon, is not noticed. Leaving the loop early leaves the command
        running; ``cancel`` ends it.
        """
        variables = env and dict(env)
        body = given(cmd=cmd, timeout_ms=timeout_ms, stdin=stdin, env=variables, cwd=cwd, shell=shell)
        return ExecStream(self._transport, self._path, body=body, idempotency_key=idempotency_key or new_key())

    def follow_exec(self, exec_id: str, *, offset: int = 0) -> ExecStream:
        """Follow a command that was started before, from any offset that is still kept."""
        return ExecStream(self._transport, self._path, exec_id=exec_id, offset=offset)

    async def cancel_exec(self, exec_id: str) -> ExecResult:
        """End a command and all that it started; the shell lives on. Returns its result."""
        path = f"{self._path}/exec/{quote(exec_id, safe='')}/cancel"
        return of_wire(ExecResult, await self._transport.call("POST", path))

    def terminal(
        self,
        cmd: str | None = None,
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: str | None = None,
        process_id: str | None = None,
        offset: int = 0,
    ) -> AbstractAsyncContextManager[Terminal]:
        """Open a terminal with ``cmd`` in it (default: a bash to type in), or the one that runs as ``process_id``."""
        size = {"rows": str(rows), "columns": str(columns), "offset": str(offset)}
        params = given(**size, cmd=cmd, cwd=cwd, process_id=process_id)
        return open_terminal(self._transport, self._path + "/terminal", params)

    async def exec_result(self, exec_id: str) -> ExecResult:
        """Return the result of an earlier command again; waits if it still runs."""
        path = f"{self._path}/exec/{quote(exec_id, safe='')}"
        data = await self._transport.call("GET", path, timeout=patience(None))
        return of_wire(ExecResult, data)

    async def write(self, path: str, data: str | bytes | bytearray | memoryview, *, mode: int | None = None) -> None:
        """Write a file as a whole; text is kept as UTF-8. ``mode`` are permission bits such as ``0o755``."""
        params = given(path=path, mode=None if mode is None else f"{mode:04o}")
        body = data.encode() if isinstance(data, str) else bytes(data)
        await self._transport.raw("POST", self._path + "/fs/write", body, {"Content-Type": RAW}, params=params)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Read a file's bytes, at most ``max_bytes`` of them."""
        params = {"path": path} if max_bytes is None else {"path": path, "max_bytes": str(max_bytes)}
        return await self._transport.raw("GET", self._path + "/fs/read", b"", {"Accept": RAW}, params=params, safe=True)

    async def stats(self) -> SessionStats:
        """Ask what it uses now of CPU, memory, disk and processes, and what it may. Does not count as use."""
        return of_wire(SessionStats, await self._transport.call("GET", self._path + "/stats"))

    async def refresh(self) -> Self:
        """Ask the daemon how the session is now."""
        self.info = of_wire(SessionInfo, await self._transport.call("GET", self._path))
        return self

    async def pause(self) -> Self:
        """Freeze it in memory; any use wakes it."""
        await self._change("pause")
        return self

    async def hibernate(self, as_: Literal["memory", "files"] | None = None) -> Self:
        """Stop it, and keep its memory where the driver can, else its files and shells; any use wakes it."""
        await self._change("hibernate", as_)
        return self

    async def wake(self) -> str | None:
        """Wake it, and say what came back: ``memory``, ``files``, or None if it was awake."""
        return await self._change("resume")

    async def restore(self, as_: Literal["files"] | None = None) -> str | None:
        """As ``wake``; also one whose sandbox has died, if its files are still there: with fresh processes.

        ``as_="files"`` gives up memory that was kept: the way out if it cannot be restored.
        """
        return await self._change("restore", as_)

    async def _change(self, verb: str, how: str | None = None) -> str | None:
        data = await self._transport.call("POST", f"{self._path}/{verb}", json_body={"as": how} if how else None)
        self.info = of_wire(SessionInfo, {"urls": self.info.urls, **data})
        restored = data.get("restored")
        return restored if isinstance(restored, str) else None

    async def snapshot(self, name: str | None = None, *, idempotency_key: str | None = None) -> SnapshotInfo:
        """Keep its files and shells as they are now, to start any number of sessions from. It goes on as before."""
        body, key = given(name=name), idempotency_key or new_key()
        path = f"{self._path}/snapshots"
        return of_wire(SnapshotInfo, await self._transport.call("POST", path, json_body=body, idempotency_key=key))

    async def fork(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Make a new session with its files, shells, environment and policies as they are now. It goes on as before."""
        body = given(metadata=None if metadata is None else dict(metadata), ttl_seconds=ttl_seconds)
        path, key = f"{self._path}/fork", idempotency_key or new_key()
        data = await self._transport.call("POST", path, json_body=body, idempotency_key=key)
        return type(self)(self._transport, of_wire(SessionInfo, data))

    async def destroy(self) -> None:
        """End it, with all its files and processes; safe to repeat."""
        await self._transport.call("DELETE", self._path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.destroy()


class PendingSession(Awaitable[Session]):
    """What ``create_session`` returns: ``await`` it for a session to keep, or use ``async with`` for one that ends."""

    def __init__(self, create: Callable[[], Awaitable[Session]]) -> None:
        self._create = create
        self._session: Session | None = None

    def __await__(self) -> Generator[object, None, Session]:
        return self._create().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._create()
        return self._session

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            await self._session.destroy()
