"""A session service in memory, with the real one's manners and none of its sandboxes.

``exec`` understands a handful of commands (``echo``, ``exit``, ``sleep``, ``cat``, ``bytes``, ``hog``); set ``fail`` to
have every call raise.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.callers.types import Caller
from holdfast.errors import (
    BadInput,
    ExecNotFound,
    FileMissing,
    IdempotencyMismatch,
    ImageInUse,
    ImageNotFound,
    SessionGone,
    SessionNotFound,
    TooManySessions,
    UnknownImage,
)
from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.records.limits import Limits
from holdfast.records.machine import LIVE, PausedAs, Reason, Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec, SnapshotKind
from holdfast.sessions.types import CreateRequest, ExecRequest, ExecResult, ForkRequest, SessionStats
from holdfast.sessions.use.follow import Attached, Chunk

MAX_TIMEOUT_MS = 120_000
STATS = SessionStats(
    cpu_seconds=1.25,
    cpu_limit=0.5,
    memory_bytes=50 << 20,
    memory_peak_bytes=None,
    memory_limit_bytes=512 << 20,
    disk_bytes=1536,
    disk_limit_bytes=None,
    processes=3,
    processes_limit=256,
    oom_kills=1,
    uptime_seconds=60.5,
)


class FakeSessions:
    def __init__(self, max_sessions: int = 1000) -> None:
        self.max_sessions = max_sessions
        self.fail: Exception | None = None
        self.fail_times = 10**9
        self.sessions: dict[str, SessionRow] = {}
        self.files: dict[tuple[str, str], bytes] = {}
        self.modes: dict[str, int | None] = {}
        self.results: dict[tuple[str, str], ExecResult] = {}
        self.keys: dict[tuple[str, str], tuple[object, object]] = {}  # by owner or session, and key
        self.last_exec: ExecRequest | None = None
        self.exec_count = 0

    def _trip(self) -> None:
        if self.fail is not None and self.fail_times > 0:
            self.fail_times -= 1
            raise self.fail

    def _live(self, session_id: str) -> SessionRow:
        view = self._view(session_id)
        if view.status is Status.DESTROYED:
            raise SessionGone(f"{session_id} was destroyed; create a new session")
        return view

    def _view(self, session_id: str) -> SessionRow:
        self._trip()
        try:
            return self.sessions[session_id]
        except KeyError:
            raise SessionNotFound(f"there is no session {session_id}") from None

    async def admit(self, session_id: str, caller: Caller, /) -> None:
        if not caller.sees_all and self._view(session_id).owner != caller.owner:
            raise SessionNotFound(f"there is no session {session_id}")

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionRow:
        self._trip()
        if (caller.owner, idempotency_key) in self.keys:
            before, view = self.keys[caller.owner, idempotency_key or ""]
            if before != req:
                raise IdempotencyMismatch("this Idempotency-Key came with another request")
            assert isinstance(view, SessionRow)
            return view
        if req.image not in (None, "host"):
            raise UnknownImage(f"there is no image {req.image}")
        if sum(one.status is not Status.DESTROYED for one in self.sessions.values()) >= self.max_sessions:
            raise TooManySessions("too many sessions; destroy one")
        owned = [one for one in self.sessions.values() if one.owner == caller.owner and one.status in LIVE]
        if caller.max_sessions is not None and len(owned) >= caller.max_sessions:
            raise TooManySessions("too many sessions of this key; destroy one")
        now = time.time()
        ttl = req.ttl_seconds or 1800
        view = SessionRow(
            id=f"ses_{len(self.sessions):08d}",
            owner=caller.owner,
            status=Status.ACTIVE,
            image=req.image or "host",
            node="node-a",
            driver="fake",
            cwd="/root",
            spec=SessionSpec(
                limits=Limits(req.cpus or 1.0, req.memory_mb or 512, req.pids or 256, req.disk_mb or 1024),
                network=req.network or NetworkPolicy.NONE,
                writable_root=bool(req.writable_root),
                env={},
                workspace=req.workspace,
            ),
            metadata=req.metadata,
            ttl_seconds=ttl,
            created_at=now,
            expires_at=now + ttl,
            last_activity_at=now,
            updated_at=now,
            snapshot_id=req.snapshot,
        )
        self.sessions[view.id] = view
        if idempotency_key is not None:
            self.keys[caller.owner, idempotency_key] = (req, view)
        return view

    async def get(self, session_id: str, /) -> SessionRow:
        return self._view(session_id)

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller
    ) -> tuple[list[SessionRow], str | None]:
        self._trip()
        if cursor is not None and not cursor.isascii():
            raise BadInput("cursor: not one of ours")
        found = [one for one in self.sessions.values() if one.status in (status or LIVE)]
        found = [one for one in found if caller.sees_all or one.owner == caller.owner]
        found = [one for one in found if cursor is None or one.id > cursor]
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    async def stats(self, session_id: str, /) -> SessionStats:
        self._live(session_id)
        return STATS

    async def stats_of(self, rows: Sequence[SessionRow], /) -> Mapping[str, SessionStats]:
        return {one.id: STATS for one in rows if one.status is Status.ACTIVE}

    async def pause(self, session_id: str, how: PausedAs | None, /) -> SessionRow:
        view = replace(self._live(session_id), status=Status.PAUSED, paused_as=how or PausedAs.MEMORY)
        self.sessions[session_id] = view
        return view

    async def wake(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        view = self._live(session_id)
        slept_as = how or PausedAs(view.paused_as) if view.paused_as else None
        self.sessions[session_id] = replace(view, status=Status.ACTIVE, paused_as=None)
        return self.sessions[session_id], slept_as

    async def revive(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        view = self._live(session_id)
        if view.status is Status.ERROR:
            self.sessions[session_id] = replace(view, paused_as=PausedAs.FILES, reason=None)
        return await self.wake(session_id)

    async def fork(
        self, session_id: str, req: ForkRequest, /, *, idempotency_key: str | None, caller: Caller
    ) -> tuple[SessionRow, SnapshotKind]:
        view = self._live(session_id)
        wish = CreateRequest(
            ttl_seconds=req.ttl_seconds or view.ttl_seconds,
            metadata=view.metadata if req.metadata is None else req.metadata,
        )
        copy = await self.create(wish, idempotency_key=idempotency_key, caller=caller)
        self.sessions[copy.id] = replace(copy, spec=replace(copy.spec, fork_of=session_id))
        return self.sessions[copy.id], SnapshotKind.FILES

    async def destroy(self, session_id: str, /) -> None:
        view = self._view(session_id)
        self.sessions[session_id] = replace(view, status=Status.DESTROYED, reason=Reason.REQUESTED)

    async def exec(self, session_id: str, req: ExecRequest, /, *, idempotency_key: str | None) -> ExecResult:
        view = self._live(session_id)
        if req.timeout_ms is not None and req.timeout_ms > MAX_TIMEOUT_MS:
            raise BadInput(f"timeout_ms: must be at most {MAX_TIMEOUT_MS}")
        if (session_id, idempotency_key) in self.keys:
            before, result = self.keys[session_id, idempotency_key or ""]
            if before != req:
                raise IdempotencyMismatch("this Idempotency-Key came with another request")
            assert isinstance(result, ExecResult)
            return result
        self.last_exec = req
        self.exec_count += 1
        result = await self._run(view, req)
        self.results[session_id, result.exec_id] = result
        if idempotency_key is not None:
            self.keys[session_id, idempotency_key] = (req, result)
        return result

    async def _run(self, view: SessionRow, req: ExecRequest) -> ExecResult:
        word, _, rest = req.cmd.partition(" ")
        out, err, code, timed_out = b"", b"", 0, False
        match word:
            case "echo":
                out = rest.encode() + b"\n"
            case "exit":
                code, err = int(rest), b"leaving\n"
            case "cat":
                out = req.stdin
            case "hog":
                code = 137
            case "bytes":
                out = bytes.fromhex(rest)
            case "sleep":
                limit = (req.timeout_ms or MAX_TIMEOUT_MS) / 1000
                timed_out = float(rest) > limit
                code = 137 if timed_out else 0
                await asyncio.sleep(min(float(rest), limit))
        return ExecResult(
            exec_id=f"exe_{self.exec_count:08d}",
            exit_code=code,
            cwd=req.cwd or view.cwd,
            output=out + err,
            stdout=out,
            stderr=err,
            truncated=False,
            timed_out=timed_out,
            cancelled=False,
            duration_ms=1,
            shell_restarted=False,
            oom_killed=word == "hog",
        )

    async def exec_result(self, session_id: str, exec_id: str, /) -> ExecResult:
        self._view(session_id)
        try:
            return self.results[session_id, exec_id]
        except KeyError:
            raise ExecNotFound(f"there is no command {exec_id}") from None

    async def write_file(self, session_id: str, path: str, data: bytes, /, *, mode: int | None) -> None:
        self._live(session_id)
        self.files[session_id, path] = data
        self.modes[path] = mode

    async def read_file(self, session_id: str, path: str, /, *, max_bytes: int | None) -> tuple[bytes, bool]:
        self._live(session_id)
        try:
            data = self.files[session_id, path]
        except KeyError:
            raise FileMissing(f"there is no file {path}") from None
        return (data, False) if max_bytes is None else (data[:max_bytes], len(data) > max_bytes)


@dataclass(frozen=True)
class FakeImage:
    name: str
    kind: str = "host"
    size_bytes: int | None = None
    created_at: float = 1_700_000_000.25
    digest: str | None = None
    recipe: str | None = None


class FakeCommands:
    """Followed commands: they have ended before anybody can follow them."""

    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions

    async def start(self, session_id: str, request: ExecRequest, /, *, idempotency_key: str | None) -> str:
        return (await self._sessions.exec(session_id, request, idempotency_key=idempotency_key)).exec_id

    async def follow(
        self, session_id: str, exec_id: str, /, *, offset: int
    ) -> AsyncGenerator[Attached | Chunk | ExecResult, None]:
        result = await self._sessions.exec_result(session_id, exec_id)
        yield Attached()
        position = 0
        for stream, data in ((STDOUT, result.stdout), (STDERR, result.stderr)):
            if data[max(offset - position, 0) :]:
                begin = max(offset, position)
                yield Chunk(stream, begin, data[begin - position :])
            position += len(data)
        yield result

    async def cancel(self, session_id: str, exec_id: str, /) -> ExecResult:
        return await self._sessions.exec_result(session_id, exec_id)


class FakeImages:
    def __init__(self) -> None:
        self.images = {"host": FakeImage("host")}

    async def list(self) -> Sequence[FakeImage]:
        return list(self.images.values())

    async def import_(self, name: str, source: str, /, *, replace: bool) -> FakeImage:
        if name in self.images and not replace:
            raise ImageInUse(f"{name} exists; say replace")
        self.images[name] = FakeImage(name, "tar", 12_345_678, 1_700_000_000.5, "sha256:" + "a" * 64)
        return self.images[name]

    async def remove(self, name: str, /) -> None:
        if name == "host":
            raise ImageInUse("host is built in")
        if self.images.pop(name, None) is None:
            raise ImageNotFound(f"there is no image {name}")
