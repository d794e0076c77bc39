"""The files of a session, as the caller holds them: ``session.files``."""

import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError
from holdfast.sdk.connection.sse import read_events
from holdfast.sdk.connection.transport import Params, Transport
from holdfast.sdk.sessions.file_results import FileChange, FileEntry, FileLink, FolderCopy
from holdfast.sdk.sessions.local_files import counted, read_file, read_folder, write_file, write_folder
from holdfast.sdk.sessions.results import given, of_wire

RAW = "application/octet-stream"
TAR = "application/x-tar"
PAGE = 5000
LONG_SECONDS = 3600.0
"""For what takes as long as there are files: copying, removing, changing whole trees."""

Entries = list[FileEntry]
LocalPath = str | os.PathLike[str]
Progress = Callable[[int], None]
"""Told the number of bytes of each piece that has gone over the wire."""


class Files:
    """Files of a sandbox. Paths are absolute, and seen with the rights of its user."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._path = f"{session_path}/fs"

    # -- content -----------------------------------------------------------------------------------------------------

    async def upload(
        self,
        source: LocalPath | bytes | AsyncIterable[bytes],
        path: str,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> FileEntry:
        """Upload a local file (by its path), bytes, or an async iterable of bytes, of any size, to ``path``.

        The file changes as a whole or not at all. ``mode`` is that of the local file, unless given.
        """
        headers = {"Content-Type": RAW}
        pieces: AsyncIterator[bytes]
        if isinstance(source, bytes):
            pieces, headers["Content-Length"] = _one(source), str(len(source))
        elif isinstance(source, str | os.PathLike):
            info = Path(source).stat()
            mode = info.st_mode & 0o777 if mode is None else mode
            pieces = read_file(Path(source))
        else:
            pieces = aiter(source)
        params = given(path=path, mode=None if mode is None else f"{mode:04o}")
        return FileEntry.of(await self._send("PUT", "/file", counted(pieces, progress), headers, params))

    async def download(self, path: str, target: LocalPath, *, progress: Progress | None = None) -> FileEntry:
        """Download ``path`` to a local file, which changes as a whole or not at all and gets the same mode."""
        entry = await self.stat(path, follow=True)
        local = Path(target)
        async with aclosing(counted(self.stream(path), progress)) as pieces:
            await write_file(local, pieces)
        local.chmod(entry.mode & 0o777)
        return entry

    async def stream(self, path: str, *, start: int = 0, count: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield a file's bytes as they come; ``count`` of them from ``start``. Raises if not all of them do."""
        headers = {"Accept": RAW}
        if start or count is not None:
            if count == 0:
                return
            headers["Range"] = f"bytes={start}-{'' if count is None else start + count - 1}"
        async with self._transport.stream(
            "GET", self._path + "/file", headers=headers, params={"path": path}
        ) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def upload_folder(self, source: LocalPath, path: str, *, progress: Progress | None = None) -> FolderCopy:
        """Upload what is in a local folder into the folder ``path``, which is made if it is missing.

        Modes and links are kept. Each file is written whole; after a failure, those that came before it stay.
        """
        return await self.unpack(counted(read_folder(Path(source)), progress), path)

    async def download_folder(self, path: str, target: LocalPath, *, progress: Progress | None = None) -> FolderCopy:
        """Download what is in the folder ``path`` into a local folder, and nothing out of it, whatever the names."""
        async with aclosing(counted(self.pack(path), progress)) as pieces:
            return await write_folder(Path(target), pieces)

    async def pack(self, path: str, *, gzip: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield a folder as a tar."""
        params = {"path": path, "format": "tar.gz" if gzip else "tar"}
        async with self._transport.stream("GET", self._path + "/archive", params=params) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def unpack(self, pieces: AsyncIterable[bytes], path: str) -> FolderCopy:
        """Unpack a tar or tar.gz into a folder."""
        data = await self._send("PUT", "/archive", aiter(pieces), {"Content-Type": TAR}, {"path": path})
        return FolderCopy(files=data["files"], bytes=data["bytes"])

    async def link(self, path: str, *, method: Literal["GET", "PUT"] = "GET", expires_seconds: int = 3600) -> FileLink:
        """Make a URL for this file that works without a key, at most for 7 days and while the session lives."""
        body = {"path": path, "method": method, "expires_seconds": expires_seconds}
        made = of_wire(FileLink, await self._post("/link", body))
        return FileLink(_reachable(made.url, self._transport.url), made.expires_at)

    # -- entries -----------------------------------------------------------------------------------------------------

    async def stat(self, path: str, *, follow: bool = False) -> FileEntry:
        """Look at one path; with ``follow``, at what a link points to."""
        params = {"path": path, "follow": _flag(follow)}
        return FileEntry.of(await self._transport.call("GET", self._path + "/stat", params=params))

    async def list(self, path: str, *, recursive: bool = False, hidden: bool = True) -> Entries:
        """List what is in a folder, sorted by path; with ``recursive`` also what is below. Links are not followed."""
        params = {"path": path, "recursive": _flag(recursive), "hidden": _flag(hidden)}
        return await self._pages("/list", params)

    async def find(self, path: str, pattern: str, *, kind: str | None = None) -> Entries:
        """Find what is below ``path`` and fits a pattern like ``**/*.py``; ``kind`` is file, directory or symlink."""
        return await self._pages("/find", given(path=path, pattern=pattern, kind=kind))

    async def mkdir(self, path: str, *, parents: bool = False, mode: int | None = None) -> FileEntry:
        body = given(path=path, parents=parents, mode=None if mode is None else f"{mode:04o}")
        return await self._changed("/mkdir", body)

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> FileEntry:
        """Move to ``target``, the new path in full. A folder that exists is never replaced."""
        return await self._changed("/move", {"source": source, "target": target, "overwrite": overwrite})

    async def copy(self, source: str, target: str, *, recursive: bool = False, overwrite: bool = False) -> FileEntry:
        """Copy to ``target``, the new path in full; ``recursive`` is needed for a folder."""
        body = {"source": source, "target": target, "recursive": recursive, "overwrite": overwrite}
        return await self._changed("/copy", body)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a path; ``recursive`` is needed for a folder that is not empty. Links are removed, never followed."""
        await self._post("/remove", {"path": path, "recursive": recursive})

    async def chmod(self, path: str, mode: int, *, recursive: bool = False) -> FileEntry:
        return await self._changed("/chmod", {"path": path, "mode": f"{mode:04o}", "recursive": recursive})

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncGenerator[FileChange, None]:
        """Yield changes as they happen, until the path itself is gone. ``ready`` comes first: then none is lost."""
        params = {"path": path, "recursive": _flag(recursive)}
        async with self._transport.stream("GET", self._path + "/watch", params=params) as response:
            async for event in read_events(response):
                data = event.data
                yield FileChange(event.kind, data["path"], data.get("directory", False), data.get("target"))

    # -- how ---------------------------------------------------------------------------------------------------------

    async def _pages(self, route: str, params: Params) -> Entries:
        wish = {**params, "limit": str(PAGE)}
        found = await self._transport.pages(self._path + route, "entries", wish, timeout=LONG_SECONDS)
        return [FileEntry.of(entry) for entry in found]

    async def _changed(self, route: str, body: dict[str, object]) -> FileEntry:
        return FileEntry.of(await self._post(route, body))

    async def _post(self, route: str, body: dict[str, object]) -> Any:
        return await self._transport.call("POST", self._path + route, json_body=body, timeout=LONG_SECONDS)

    async def _send(
        self, method: str, route: str, pieces: AsyncIterator[bytes], headers: dict[str, str], params: Params
    ) -> Any:
        """Send a body of any size, once: what an iterator has given cannot be asked for again."""
        source = _Source(pieces)
        try:
            async with self._transport.stream(
                method, self._path + route, body=source, headers=headers, params=params, timeout=LONG_SECONDS
            ) as response:
                return await response.json(content_type=None)
        except HoldfastError:
            if source.failure is not None:  # then the connection broke because we could not go on
                raise source.failure from None
            raise


class _Source:
    """Pieces to be sent, and what went wrong in getting them."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.failure: Exception | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in self._pieces:
                yield piece
        except Exception as error:
            self.failure = error
            raise


def _flag(value: bool) -> str:
    return "true" if value else "false"


async def _one(data: bytes) -> AsyncGenerator[bytes, None]:
    view = memoryview(data)
    for start in range(0, len(view), 1 << 18):
        yield bytes(view[start : start + (1 << 18)])


def _reachable(told: str, ours: str) -> str:
    """A link as the daemon tells it; at the address that we use where that of a daemon behind a proxy cannot be meant:
    it was not told of the proxy, and takes its own, or the scheme between them, for the world's."""
    there, here = urlsplit(told), urlsplit(ours)
    local = ("127.0.0.1", "localhost", "::1")
    hidden = there.hostname in local and here.hostname not in local
    if hidden or (there.scheme == "http" and here.scheme == "https"):
        return ours + told[told.index("/v1/files/") :]
    return told
