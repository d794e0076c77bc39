"""/v1/sessions/{id}/fs: files and folders as streams of any size; and links to single files for those without a key."""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf, admit
from holdfast.api.files.links import FileLinks
from holdfast.api.files.models import EntryOut, LinkOut, MakeLink, UnpackedOut, entry_json, json_reply
from holdfast.api.files.part_reply import RAW
from holdfast.api.files.paths import QueryPath
from holdfast.api.files.protocols import FileService
from holdfast.api.files.streamed import StreamedFile, StreamedFolder
from holdfast.api.sessions.models import Mode, mode_bits
from holdfast.api.settings import ApiSettings
from holdfast.api.wire.common import SessionId, failures, reply
from holdfast.api.wire.streaming import arriving
from holdfast.api.wire.text import timestamp
from holdfast.sessions.use.sight import see_files_only

LINKED = "/v1/files/{token}"

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BODY = {"requestBody": {"required": True, "content": {RAW: _BYTES}}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {RAW: _BYTES}},
    206: {"description": "The part of it that Range names", "content": {RAW: _BYTES}},
    304: {"description": "The caller has it already"},
}
_TAR: dict[int | str, dict[str, Any]] = {
    200: {"description": "The folder", "content": {"application/x-tar": _BYTES, "application/gzip": _BYTES}}
}
_READ = failures(403, 404, 409, 410, 422, 502, 503)
_WRITE = failures(403, 404, 409, 410, 413, 422, 502, 503)

QueryMode = Annotated[Mode | None, Query(description='Octal, such as "0644"; else as it was, or 0644')]
Token = Annotated[str, Path(description="from fs/link")]


def router(files: FileService, links: FileLinks, settings: ApiSettings) -> APIRouter:
    routes = APIRouter(tags=["files"])
    base = "/v1/sessions/{session_id}/fs"

    async def put(session_id: str, path: str, request: Request, mode: str | None) -> Response:
        pieces = arriving(request.stream())
        return json_reply(entry_json(await files.upload(session_id, path, pieces, mode=mode_bits(mode))))

    @routes.get(
        f"{base}/file", response_class=Response, responses=_READ | failures(416) | _FILE, summary="Download a file"
    )
    async def download(session_id: SessionId, path: QueryPath) -> Response:
        """Of any size. Knows Range, If-Range and If-None-Match; HEAD works too."""
        return StreamedFile(files, session_id, path)

    routes.head(f"{base}/file", include_in_schema=False)(download)

    @routes.put(f"{base}/file", response_model=EntryOut, responses=_WRITE, openapi_extra=_BODY, summary="Upload a file")
    async def upload(session_id: SessionId, path: QueryPath, request: Request, mode: QueryMode = None) -> Response:
        """Of any size. Makes missing parent directories. The file changes as a whole or not at all."""
        return await put(session_id, path, request, mode)

    @routes.get(f"{base}/archive", response_class=Response, responses=_READ | _TAR, summary="Download a folder")
    async def pack(
        session_id: SessionId, path: QueryPath, format: Annotated[Literal["tar", "tar.gz"], Query()] = "tar"
    ) -> Response:
        """As a tar of what is in it. A connection that breaks before the end means that it is not whole."""
        gzip = format == "tar.gz"
        return StreamedFolder(files.pack(session_id, path, gzip=gzip), path, gzip=gzip)

    @routes.put(
        f"{base}/archive",
        response_model=UnpackedOut,
        responses=_WRITE,
        openapi_extra=_BODY,
        summary="Upload a folder",
    )
    async def unpack(session_id: SessionId, path: QueryPath, request: Request) -> Response:
        """A tar or tar.gz, unpacked into the folder. Each file is written whole; the folder is not: what was unpacked
        before a failure stays."""
        done = await files.unpack(session_id, path, arriving(request.stream()))
        return json_reply({"path": path, "files": done.files, "bytes": done.bytes})

    @routes.post(f"{base}/link", response_model=LinkOut, responses=_READ, summary="Make a link to a file")
    async def link(session_id: SessionId, body: MakeLink, request: Request, caller: CallerOf) -> Response:
        """A URL that works without a key, for this file and this method, until it expires, the session ends, or the key
        goes that it was made with."""
        await files.check(session_id)
        expires = int(time.time()) + body.expires_seconds
        token = links.make(session_id, body.path, body.method, expires, caller.key_id)
        url = (settings.public_url or str(request.base_url)).rstrip("/") + LINKED.format(token=token)
        return reply(LinkOut(url=url, expires_at=timestamp(expires)))

    @routes.get(LINKED, response_class=Response, responses=_READ | failures(416) | _FILE, summary="Download by a link")
    async def linked_download(token: Token, request: Request) -> Response:
        session_id, path = links.open(token, request.method)
        admit(request.scope)
        see_files_only()  # whoever has the link was given a file, and not what the sandbox puts in its place
        return StreamedFile(files, session_id, path)

    routes.head(LINKED, include_in_schema=False)(linked_download)

    @routes.put(LINKED, response_model=EntryOut, responses=_WRITE, openapi_extra=_BODY, summary="Upload by a link")
    async def linked_upload(token: Token, request: Request) -> Response:
        session_id, path = links.open(token, request.method)
        admit(request.scope)
        return await put(session_id, path, request, None)

    return routes
