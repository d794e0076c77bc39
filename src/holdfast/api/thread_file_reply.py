"""A reply with a file of a thread, or the part of it that the request's Range names."""

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api import ranges
from holdfast.api.failures import error_reply
from holdfast.api.streamed_files import RAW, attachment
from holdfast.api.streaming import send_body, while_connected
from holdfast.errors import BadRange
from holdfast.threads.keys import ThreadRef
from holdfast.threads.service import ThreadService
from holdfast.threads.types import FileView


class ThreadFileReply(Response):
    """Opened only when the reply is sent, by the same code that closes it. Answers HEAD too."""

    def __init__(self, threads: ThreadService, thread: ThreadRef, file_id: str) -> None:
        super().__init__(None)
        self._threads = threads
        self._thread = thread
        self._file_id = file_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._threads.download(self._thread, self._file_id) as download:
            file = download.view
            part = ranges.choose(Headers(scope=scope), size=file.size, etag=_etag(file))
            if part.status == BadRange.status:
                refused = BadRange(f"{file.name} has {file.size} bytes, and the range begins after them")
                headers = {"Content-Range": f"bytes */{file.size}"}
                await error_reply(scope, refused.status, refused.code, refused.message, headers)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": part.status, "headers": _head(file, part)})
            if scope["method"] == "HEAD" or part.status == 304:
                await send({"type": "http.response.body", "body": b""})
            else:
                await send_body(send, download.read(part.start, part.count), file.id)


def _etag(file: FileView) -> str:
    return f'"{file.sha256[:32]}"'


def _head(file: FileView, part: ranges.Part) -> list[tuple[bytes, bytes]]:
    headers = Response(None, part.status).headers
    headers["ETag"] = _etag(file)
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
