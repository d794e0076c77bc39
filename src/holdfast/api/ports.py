"""What the edge needs from the layers below, as protocols: anything of this shape can stand behind the API."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.sessions.machine import Status
from holdfast.sessions.types import CreateRequest, ExecRequest, ExecResult, SessionStats, SessionView


class SessionService(Protocol):
    """Sessions, as the API uses them. Failures are raised as ``HoldfastError``s; nothing else is expected."""

    async def create(self, req: CreateRequest, *, idempotency_key: str | None) -> SessionView:
        """Make a session; with a key seen before, give the session that was made then."""
        ...

    async def get(self, session_id: str, /) -> SessionView: ...

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, stats: bool = False
    ) -> tuple[list[SessionView], str | None]:
        """One page, newest first, and the cursor of the next one; with ``stats``, with what the active ones use."""
        ...

    async def stats(self, session_id: str, /) -> SessionStats:
        """What an active session uses now."""
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
