"""A reply with a file, or with the part of it that the request's Range names, wherever the file comes from."""

import posixpath
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.edge.failures import error_reply
from holdfast.api.files import ranges
from holdfast.api.wire.streaming import send_body, while_connected
from holdfast.errors import BadRange

RAW = "application/octet-stream"
BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
RAW_BODY = {"requestBody": {"required": True, "content": {RAW: BYTES}}}
FILE_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {RAW: BYTES}},
    206: {"description": "The part of it that Range names", "content": {RAW: BYTES}},
    304: {"description": "The caller has it already"},
}


@dataclass(frozen=True, slots=True)
class OpenFile:
    """``read`` gives so many bytes from a place on."""

    name: str
    size: int
    etag: str
    read: Callable[[int, int], AsyncIterator[bytes]]


class FilePartReply(Response):
    """Opened only when the reply is sent, by the same code that closes it; a failure until then is an ordinary error.

    Answers HEAD too.
    """

    def __init__(self) -> None:
        super().__init__(None)

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[OpenFile]:
        """Return the file, for as long as it is being sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.opened() as file:
            part = ranges.choose(Headers(scope=scope), size=file.size, etag=file.etag)
            if part.status == BadRange.status:
                refused = BadRange(f"{file.name} has {file.size} bytes, and the range begins after them")
                headers = {"Content-Range": f"bytes */{file.size}"}
                await error_reply(scope, refused.status, refused.code, refused.message, headers)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": part.status, "headers": _head(file, part)})
            if scope["method"] == "HEAD" or part.status == 304:
                await send({"type": "http.response.body", "body": b""})
            else:
                await send_body(send, file.read(part.start, part.count), file.name)


def _head(file: OpenFile, part: ranges.FilePart) -> list[tuple[bytes, bytes]]:
    headers = Response(None, part.status).headers
    headers["ETag"] = file.etag
    headers["Accept-Ranges"] = "bytes"
    headers["Cache-Control"] = "no-cache"
    if part.status != 304:
        headers["Content-Length"] = str(part.count)
        headers["Content-Type"] = RAW
        headers["Content-Disposition"] = attachment(file.name)
        headers["X-Content-Type-Options"] = "nosniff"
    if part.status == 206:
        headers["Content-Range"] = f"bytes {part.start}-{part.start + part.count - 1}/{file.size}"
    return headers.raw


def attachment(path: str, suffix: str = "") -> str:
    """Return a header that gives the file its name, whatever characters that has."""
    name = (posixpath.basename(path.rstrip("/")) or "files") + suffix
    raw = name.encode("utf-8", "surrogateescape")
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\%' else "_" for byte in raw)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(raw, safe='')}"
