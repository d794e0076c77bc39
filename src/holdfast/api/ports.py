"""What the edge needs from the layers below, as protocols: anything of this shape can stand behind the API."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from holdfast.sessions.events import Filter, Gap
from holdfast.sessions.machine import Status
from holdfast.sessions.types import CreateRequest, ExecRequest, ExecResult, SessionView
from holdfast.store import EventPage, EventRow


class SessionService(Protocol):
    """Sessions, as the API uses them. Failures are raised as ``HoldfastError``s; nothing else is expected."""

    async def create(self, req: CreateRequest, *, idempotency_key: str | None) -> SessionView:
        """Make a session; with a key seen before, give the session that was made then."""
        ...

    async def get(self, session_id: str, /) -> SessionView: ...

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None
    ) -> tuple[list[SessionView], str | None]:
        """One page, newest first, and the cursor of the next one."""
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


class ImageService(Protocol):
    """Images, as the API uses them."""

    async def list(self) -> Sequence[ImageInfo]: ...

    async def import_(self, name: str, source: str, /, *, replace: bool) -> ImageInfo:
        """Make an image from a root file system on the host: a directory or a tar file."""
        ...

    async def remove(self, name: str, /) -> None: ...


class EventService(Protocol):
    """What happens to sessions, as the API uses it."""

    async def page(self, after: int | None, limit: int, wanted: Filter) -> EventPage:
        """The next events after a number, without waiting; ``BadInput`` for a number that was never given out."""
        ...

    def follow(self, after: int | None, wanted: Filter) -> AsyncGenerator[EventRow | Gap, None]:
        """All events after a number, then those to come; in order, each once."""
        ...
