"""What the edge needs for files, as protocols: anything of this shape can stand behind the API."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.sessions.use.file_types import Change, Entry, Search, Unpacked


class Download(Protocol):
    """A file that is open, until the end of its context."""

    @property
    def entry(self) -> Entry: ...

    def read(self, start: int, count: int) -> AsyncIterator[bytes]:
        """Exactly ``count`` bytes, or an error."""
        ...


class FileService(Protocol):
    """Files of sessions. Failures are raised as ``HoldfastError``s, and whatever ``pieces`` raises; nothing else is."""

    async def check(self, session_id: str) -> None:
        """Raises what any use of the session would."""
        ...

    def download(self, session_id: str, path: str) -> AbstractAsyncContextManager[Download]: ...

    async def upload(self, session_id: str, path: str, pieces: AsyncIterable[bytes], *, mode: int | None) -> Entry:
        """All or nothing: if ``pieces`` raises, the file stays as it was."""
        ...

    def pack(self, session_id: str, path: str, *, gzip: bool) -> AsyncGenerator[bytes, None]:
        """A tar. The first piece is empty and says that the folder can be read."""
        ...

    async def unpack(self, session_id: str, path: str, pieces: AsyncIterable[bytes]) -> Unpacked: ...

    async def stat(self, session_id: str, path: str, *, follow: bool) -> Entry: ...

    async def list(self, session_id: str, search: Search) -> tuple[list[Entry], str | None]:
        """One page, and where the next one goes on."""
        ...

    async def mkdir(self, session_id: str, path: str, *, parents: bool, mode: int | None) -> Entry: ...

    async def chmod(self, session_id: str, path: str, mode: int, *, recursive: bool) -> Entry: ...

    async def move(self, session_id: str, source: str, target: str, *, overwrite: bool) -> Entry: ...

    async def copy(self, session_id: str, source: str, target: str, *, recursive: bool, overwrite: bool) -> Entry: ...

    async def remove(self, session_id: str, path: str, *, recursive: bool) -> None: ...

    def watch(self, session_id: str, path: str, *, recursive: bool) -> AsyncGenerator[Change | None, None]:
        """None when the watch is in place, then each change."""
        ...
