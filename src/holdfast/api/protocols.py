"""What the edge needs from the layers below, as protocols: anything of this shape can stand behind the API."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import Caller, KeyView, Scope
from holdfast.records.copies import SnapshotRow
from holdfast.records.events import EventPage, EventRow
from holdfast.records.machine import PausedAs, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.telling.events import Filter, Gap
from holdfast.sessions.types import (
    CreateRequest,
    ExecRequest,
    ExecResult,
    ForkRequest,
    SessionStats,
    StrayView,
    WorkspaceView,
)
from holdfast.sessions.use.follow import Attached, Chunk


class SessionService(Protocol):
    """Sessions, as the API uses them. Failures are raised as ``HoldfastError``s; nothing else is expected.

    Who may know of a session is asked once, by ``admit``, before anything else is done with its id: see ``access.py``.
    """

    async def admit(self, session_id: str, caller: Caller, /) -> None:
        """Returns if the caller may know of this session; else raises ``SessionNotFound``, as if there were none."""
        ...

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionRow:
        """Make a session of the caller's owner; with a key seen before, give the session that was made then."""
        ...

    async def get(self, session_id: str, /) -> SessionRow: ...

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller
    ) -> tuple[list[SessionRow], str | None]:
        """One page of what the caller may see, newest first, and the cursor of the next one."""
        ...

    async def stats(self, session_id: str, /) -> SessionStats:
        """What an active session uses now."""
        ...

    async def stats_of(self, rows: Sequence[SessionRow], /) -> Mapping[str, SessionStats]:
        """What those of these sessions use that are active, by id, as far as it can be read."""
        ...

    async def pause(self, session_id: str, how: PausedAs | None, /) -> SessionRow:
        """Put it to sleep; None is the best way to hold no process."""
        ...

    async def wake(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        """Wake it, and say how it had slept."""
        ...

    async def revive(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        """As ``wake``, and bring back one that is in error from its files."""
        ...

    async def fork(
        self, session_id: str, req: ForkRequest, /, *, idempotency_key: str | None, caller: Caller
    ) -> tuple[SessionRow, SnapshotKind]:
        """A copy of it, as it is now, and what came back in it."""
        ...

    async def destroy(self, session_id: str, /) -> None:
        """From any state, also twice."""
        ...

    async def exec(self, session_id: str, req: ExecRequest, /, *, idempotency_key: str | None) -> ExecResult:
        """Run to the end. A caller that goes away does not stop the command, nor the keeping of its result."""
        ...

    async def exec_result(self, session_id: str, exec_id: str, /) -> ExecResult:
        """The result again; waits for a command that still runs, for as long as that may take."""
        ...

    async def write_file(self, session_id: str, path: str, data: bytes, /, *, mode: int | None) -> None: ...

    async def read_file(self, session_id: str, path: str, /, *, max_bytes: int | None) -> tuple[bytes, bool]:
        """The bytes, and whether there were more."""
        ...


class CommandService(Protocol):
    """Commands that are followed while they run."""

    async def start(self, session_id: str, request: ExecRequest, /, *, idempotency_key: str | None) -> str:
        """The exec id, as soon as the command is in the shell's queue."""
        ...

    def follow(
        self, session_id: str, exec_id: str, /, *, offset: int
    ) -> AsyncGenerator[Attached | Chunk | ExecResult, None]:
        """Output from ``offset`` on; at last the result, without output."""
        ...

    async def cancel(self, session_id: str, exec_id: str, /) -> ExecResult: ...


class ImageInfo(Protocol):
    """An image as the API shows it."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def size_bytes(self) -> int | None: ...
    @property
    def created_at(self) -> float: ...
    @property
    def digest(self) -> str | None: ...
    @property
    def recipe(self) -> str | None: ...


class ImageService(Protocol):
    """Images, as the API uses them."""

    async def list(self) -> Sequence[ImageInfo]: ...

    async def import_(self, name: str, source: str, /, *, replace: bool) -> ImageInfo:
        """Make an image from a root file system on the host: a directory or a tar file."""
        ...

    async def remove(self, name: str, /) -> None: ...


class SnapshotService(Protocol):
    """Snapshots, as the API uses them. ``reference`` is a name of the caller's, or an id."""

    async def create(
        self, session_id: str, name: str | None, /, *, idempotency_key: str | None, caller: Caller
    ) -> SnapshotRow: ...

    async def list(self, *, caller: Caller) -> Sequence[SnapshotRow]: ...

    async def get(self, reference: str, /, *, caller: Caller) -> SnapshotRow: ...

    async def delete(self, reference: str, /, *, caller: Caller) -> None: ...


class WorkspaceService(Protocol):
    """Workspaces, as the API uses them. ``reference`` is a name of the caller's, or an id."""

    async def list(self, *, caller: Caller) -> Sequence[WorkspaceView]: ...

    async def delete(self, reference: str, /, *, caller: Caller) -> None: ...


class StrayService(Protocol):
    """What is set aside, as the API uses it."""

    async def list(self) -> Sequence[StrayView]: ...

    async def adopt(self, id: str, /) -> StrayView: ...

    async def remove(self, id: str, /) -> None: ...


class KeyService(Protocol):
    """Keys, as the API uses them."""

    def caller(self, presented: bytes, /) -> Caller | None:
        """Who presents this key; None if it opens nothing. Asked on every request, so it must not wait."""
        ...

    def knows(self, caller: Caller, /) -> bool:
        """Whether the caller's key is still there."""
        ...

    async def add(
        self, name: str, scope: Scope, /, *, owner: str | None, max_sessions: int | None, ceilings: Ceilings
    ) -> tuple[KeyView, str]:
        """A new key, and its text, which is never seen again."""
        ...

    async def list(self) -> Sequence[KeyView]: ...

    async def remove(self, name: str, /) -> None:
        """It opens nothing from now on. Sessions stay."""
        ...


class EventService(Protocol):
    """What happens to sessions, as the API uses it."""

    async def page(self, after: int | None, limit: int, wanted: Filter) -> EventPage:
        """The next events after a number, without waiting; ``BadInput`` for a number that was never given out."""
        ...

    def follow(self, after: int | None, wanted: Filter) -> AsyncGenerator[EventRow | Gap, None]:
        """All events after a number, then those to come; in order, each once."""
        ...
