"""/v1/sessions/{id}/fs: write a file into a sandbox, read one out of it.

JSON with base64 is for callers that want nothing but JSON. Raw bytes, by Content-Type and Accept, are for those that
want speed; the SDK is one of them.
"""

import asyncio
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.files.body import FileBody, FileUpload, join
from holdfast.api.files.part_reply import BYTES, RAW
from holdfast.api.files.paths import check_visible
from holdfast.api.sessions.models import FileContent, FileWrite, FileWritten, Mode, mode_bits
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.pieces import PiecesReply, cut
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.text import AbsolutePath, to_base64
from holdfast.errors import BadInput
from holdfast.sessions.service import SessionService

TRUNCATED = "X-Truncated"
_PIECE = 3 * 256 * 1024
"""A multiple of three, so that the base64 of the pieces can be joined."""

_WRITE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": FileWrite.model_json_schema()}, RAW: BYTES},
    }
}
_READ_REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": f"The content; as raw bytes if asked for by Accept, and then {TRUNCATED} says if that is all",
        "content": {RAW: BYTES},
    }
}


def router(service: SessionService) -> Routes:
    routes = Routes("files")

    @routes.post(
        f"{SESSION}/fs/write",
        "Write a file",
        scope=USE,
        returns=FileWritten,
        fails=(*IN_SESSION, 403, 413),
        extra=_WRITE_BODY,
    )
    async def write_file(
        session_id: SessionId,
        request: Request,
        path: Annotated[AbsolutePath | None, Query(description="Only with a raw body")] = None,
        mode: Annotated[Mode | None, Query(description='Only with a raw body: octal, such as "0644"')] = None,
    ) -> Response:
        """Write a file. Missing parent directories are made. The file changes as a whole or not at all."""
        raw = request.headers.get("content-type", "").partition(";")[0].strip().lower() == RAW
        upload = await (_raw_upload(request, path, mode) if raw else _json_upload(request))
        await service.write_file(session_id, upload.path, upload.data, mode=upload.mode)
        return reply(FileWritten())

    @routes.get(
        f"{SESSION}/fs/read",
        "Read a file",
        scope=READ,
        returns=FileContent,
        fails=(*IN_SESSION, 403, 413),
        responses=_READ_REPLY,
    )
    async def read_file(
        session_id: SessionId,
        request: Request,
        path: Annotated[AbsolutePath, Query()],
        max_bytes: Annotated[int | None, Query(ge=0, le=2**40, description="Read no more than this")] = None,
    ) -> Response:
        check_visible(request, path)
        data, truncated = await service.read_file(session_id, path, max_bytes=max_bytes)
        if RAW in request.headers.get("accept", ""):
            return PiecesReply(cut(data), RAW, {TRUNCATED: "true" if truncated else "false"})
        return FileReply(data, truncated)

    return routes


async def _json_upload(request: Request) -> FileUpload:
    body = FileBody()
    async for chunk in request.stream():
        body.feed(chunk)
    return await body.finish()


async def _raw_upload(request: Request, path: str | None, mode: str | None) -> FileUpload:
    if path is None:
        raise BadInput("path is required; with a raw body it goes into the query")
    return FileUpload(path, await join([chunk async for chunk in request.stream()]), mode_bits(mode))


class FileReply(Response):
    """The content as JSON, encoded and sent in pieces: a large file neither doubles in memory nor blocks the loop."""

    media_type = "application/json"

    def __init__(self, data: bytes, truncated: bool) -> None:
        self._data = data
        self._open = b'{"content_base64":"'
        self._close = b'","truncated":true}' if truncated else b'","truncated":false}'
        super().__init__(None)
        length = len(self._open) + (len(data) + 2) // 3 * 4 + len(self._close)
        self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(self._data) <= _PIECE:
            await send({"type": "http.response.body", "body": self._open + to_base64(self._data) + self._close})
            return
        await send({"type": "http.response.body", "body": self._open, "more_body": True})
        view = memoryview(self._data)
        for at in range(0, len(view), _PIECE):
            await send({"type": "http.response.body", "body": to_base64(view[at : at + _PIECE]), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": self._close})
