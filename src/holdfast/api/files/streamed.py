"""Replies with a file, or with a folder as a tar, straight from the sandbox."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.files.part_reply import FilePartReply, OpenFile, attachment
from holdfast.api.files.protocols import FileService
from holdfast.api.wire.streaming import send_body, while_connected
from holdfast.sessions.use.file_types import Entry


def etag_of(entry: Entry) -> str:
    """Changes when the file is replaced, or written to and its size or time differs."""
    return f'"{entry.inode:x}-{entry.size:x}-{entry.mtime_ns & (1 << 64) - 1:x}"'


class StreamedFile(FilePartReply):
    """A file of a session."""

    def __init__(self, files: FileService, session_id: str, path: str) -> None:
        super().__init__()
        self._files = files
        self._session_id = session_id
        self._path = path

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenFile]:
        async with self._files.download(self._session_id, self._path) as download:
            yield OpenFile(self._path, download.entry.size, etag_of(download.entry), download.read)


class StreamedFolder(Response):
    """A folder as a tar; how long it will be, nobody knows before."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], path: str, *, gzip: bool) -> None:
        super().__init__(None, media_type="application/gzip" if gzip else "application/x-tar")
        del self.headers["content-length"]
        self.headers["Content-Disposition"] = attachment(path, ".tar.gz" if gzip else ".tar")
        self._pieces = pieces
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._pieces):
            await while_connected(receive, self._answer(send))

    async def _answer(self, send: Send) -> None:
        await anext(self._pieces)  # from here on it is a reply, up to here an error
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send_body(send, self._pieces, self._path)
