"""Replies with a file, or with a folder as a tar, straight from the sandbox."""

import contextlib
import posixpath
from collections.abc import AsyncGenerator
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api import ranges
from holdfast.api.failures import error_reply
from holdfast.api.file_ports import Download, FileService
from holdfast.api.streaming import send_body, while_connected
from holdfast.errors import BadRange
from holdfast.sessions.file_types import Entry

RAW = "application/octet-stream"


def etag_of(entry: Entry) -> str:
    """Changes when the file is replaced, or written to and its size or time differs."""
    return f'"{entry.inode:x}-{entry.size:x}-{entry.mtime_ns & (1 << 64) - 1:x}"'


def attachment(path: str, suffix: str = "") -> str:
    """A header that gives the file its name, whatever characters that has."""
    name = (posixpath.basename(path.rstrip("/")) or "files") + suffix
    raw = name.encode("utf-8", "surrogateescape")
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\%' else "_" for byte in raw)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(raw, safe='')}"


class StreamedFile(Response):
    """A file, or the part of it that the request's Range names. Answers HEAD too.

    Opened only when the reply is sent, by the same code that closes it; a failure until then is an ordinary error.
    """

    def __init__(self, files: FileService, session_id: str, path: str) -> None:
        super().__init__(None)
        self._files = files
        self._session_id = session_id
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._files.download(self._session_id, self._path) as download:
            entry = download.entry
            part = ranges.choose(Headers(scope=scope), size=entry.size, etag=etag_of(entry))
            if part.status == BadRange.status:
                refused = BadRange(f"{self._path} has {entry.size} bytes, and the range begins after them")
                headers = {"Content-Range": f"bytes */{entry.size}"}
                await error_reply(scope, refused.status, refused.code, refused.message, headers)(scope, receive, send)
                return
            head = {"type": "http.response.start", "status": part.status, "headers": self._head(entry, part)}
            await send(head)
            if scope["method"] == "HEAD" or part.status == 304:
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._send_part(send, download, part)

    async def _send_part(self, send: Send, download: Download, part: ranges.Part) -> None:
        await send_body(send, download.read(part.start, part.count), self._path)

    def _head(self, entry: Entry, part: ranges.Part) -> list[tuple[bytes, bytes]]:
        headers = Response(None, part.status).headers
        headers["ETag"] = etag_of(entry)
        headers["Accept-Ranges"] = "bytes"
        headers["Cache-Control"] = "no-cache"
        if part.status != 304:
            headers["Content-Length"] = str(part.count)
            headers["Content-Type"] = RAW
            headers["Content-Disposition"] = attachment(self._path)
            headers["X-Content-Type-Options"] = "nosniff"
        if part.status == 206:
            headers["Content-Range"] = f"bytes {part.start}-{part.start + part.count - 1}/{entry.size}"
        return headers.raw


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
