"""/v1/sessions/{id}/fs: files and folders as streams of any size; and links to single files for those without a key."""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.edge.caller import CallerOf, admit
from holdfast.api.files.links import FileLinks
from holdfast.api.files.models import EntryOut, LinkOut, MakeLink, UnpackedOut, entry_json, json_reply
from holdfast.api.files.part_reply import BYTES, FILE_REPLIES, RAW_BODY, FilePartReply, OpenFile, attachment
from holdfast.api.files.paths import QueryPath
from holdfast.api.sessions.models import Mode, mode_bits
from holdfast.api.settings import ApiSettings
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.routes import OPEN, READ, SESSION, USE, Routes
from holdfast.api.wire.streaming import arriving, send_body, while_connected
from holdfast.api.wire.text import timestamp
from holdfast.sessions.use.file_types import Entry
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.sight import see_files_only

LINKED = "/v1/files/{token}"

_TAR: dict[int | str, dict[str, Any]] = {
    200: {"description": "The folder", "content": {"application/x-tar": BYTES, "application/gzip": BYTES}}
}
_READ = (403, 404, 409, 410, 422, 502, 503)
_WRITE = (403, 404, 409, 410, 413, 422, 502, 503)

QueryMode = Annotated[Mode | None, Query(description='Octal, such as "0644"; else as it was, or 0644')]
Token = Annotated[str, Path(description="from fs/link")]


def etag_of(entry: Entry) -> str:
    """Return the file's ETag. It changes when the file is replaced, or written to with another size or time."""
    return f'"{entry.inode:x}-{entry.size:x}-{entry.mtime_ns & (1 << 64) - 1:x}"'


class StreamedFile(FilePartReply):
    """A file of a session."""

    def __init__(self, files: SessionFiles, session_id: str, path: str) -> None:
        super().__init__()
        self._files = files
        self._session_id = session_id
        self._path = path

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenFile]:
        async with self._files.download(self._session_id, self._path) as download:
            yield OpenFile(self._path, download.entry.size, etag_of(download.entry), download.read)


class StreamedFolder(Response):
    """A folder as a tar. Nobody knows before how long it will be."""

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


def router(files: SessionFiles, links: FileLinks, settings: ApiSettings) -> Routes:
    routes = Routes("files")
    base = f"{SESSION}/fs"

    async def put(session_id: str, path: str, request: Request, mode: str | None) -> Response:
        pieces = arriving(request.stream())
        return json_reply(entry_json(await files.upload(session_id, path, pieces, mode=mode_bits(mode))))

    @routes.get(f"{base}/file", "Download a file", scope=READ, head=True, fails=(*_READ, 416), responses=FILE_REPLIES)
    async def download_file(session_id: SessionId, path: QueryPath) -> Response:
        """Send a file of any size. Range, If-Range, If-None-Match and HEAD work."""
        return StreamedFile(files, session_id, path)

    @routes.put(f"{base}/file", "Upload a file", scope=USE, returns=EntryOut, fails=_WRITE, extra=RAW_BODY)
    async def upload_file(session_id: SessionId, path: QueryPath, request: Request, mode: QueryMode = None) -> Response:
        """Write a file of any size. Missing parent directories are made. The file changes as a whole or not at all."""
        return await put(session_id, path, request, mode)

    @routes.get(f"{base}/archive", "Download a folder", scope=READ, fails=_READ, responses=_TAR)
    async def download_archive(
        session_id: SessionId, path: QueryPath, format: Annotated[Literal["tar", "tar.gz"], Query()] = "tar"
    ) -> Response:
        """Send what is in a folder as a tar. A connection that breaks before the end means that the tar is not
        whole."""
        gzip = format == "tar.gz"
        return StreamedFolder(files.pack(session_id, path, gzip=gzip), path, gzip=gzip)

    @routes.put(f"{base}/archive", "Upload a folder", scope=USE, returns=UnpackedOut, fails=_WRITE, extra=RAW_BODY)
    async def unpack_archive(session_id: SessionId, path: QueryPath, request: Request) -> Response:
        """Unpack a tar or tar.gz into a folder. Each file is written whole; the folder is not: what was unpacked before
        a failure stays."""
        done = await files.unpack(session_id, path, arriving(request.stream()))
        return json_reply({"path": path, "files": done.files, "bytes": done.bytes})

    @routes.post(
        f"{base}/link",
        "Make a link to a file",
        scope=USE,
        returns=LinkOut,
        fails=_READ,
    )
    async def create_file_link(session_id: SessionId, body: MakeLink, request: Request, caller: CallerOf) -> Response:
        """Make a URL that works without a key, for this file and this method.

        It ends when it expires, when the session ends, or when the key is removed that made it.
        """
        await files.check(session_id)
        expires = int(time.time()) + body.expires_seconds
        token = links.make(session_id, body.path, body.method, expires, caller.key_id)
        url = (settings.public_url or str(request.base_url)).rstrip("/") + LINKED.format(token=token)
        return reply(LinkOut(url=url, expires_at=timestamp(expires)))

    @routes.get(LINKED, "Download by a link", scope=OPEN, head=True, fails=(*_READ, 416), responses=FILE_REPLIES)
    async def download_by_link(token: Token, request: Request) -> Response:
        session_id, path = links.open(token, request.method)
        admit(request.scope)
        see_files_only()  # whoever has the link was given a file, and not what the sandbox puts in its place
        return StreamedFile(files, session_id, path)

    @routes.put(LINKED, "Upload by a link", scope=OPEN, returns=EntryOut, fails=_WRITE, extra=RAW_BODY)
    async def upload_by_link(token: Token, request: Request) -> Response:
        session_id, path = links.open(token, request.method)
        admit(request.scope)
        return await put(session_id, path, request, None)

    return routes
