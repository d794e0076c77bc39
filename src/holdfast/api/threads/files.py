"""/v1/threads/{key}/files and artifacts: what goes to the agent with messages, and what it has made."""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from holdfast.api.files.part_reply import RAW, FilePartReply, OpenFile
from holdfast.api.threads.common import BASE, Thread, ThreadFileId
from holdfast.api.threads.models import FileList, FileOut
from holdfast.api.wire.common import failures, reply
from holdfast.api.wire.streaming import arriving
from holdfast.api.wire.text import Name
from holdfast.threads.names import ThreadRef
from holdfast.threads.service import ThreadService

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BODY = {"requestBody": {"required": True, "content": {RAW: _BYTES}}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {RAW: _BYTES}},
    206: {"description": "The part of it that Range names", "content": {RAW: _BYTES}},
    304: {"description": "The caller has it already"},
}


def router(threads: ThreadService) -> APIRouter:
    routes = APIRouter(tags=["threads"])

    @routes.post(
        f"{BASE}/files",
        status_code=201,
        response_model=FileOut,
        responses=failures(404, 409, 413, 422, 503),
        openapi_extra=_BODY,
        summary="Upload a file",
    )
    async def upload(
        thread: Thread, request: Request, name: Annotated[Name, Query(description="such as report.pdf")]
    ) -> Response:
        """For a message to name in its attachments. Makes the thread if it is new. Kept whole or not at all."""
        return reply(FileOut.of(await threads.upload(thread, name, arriving(request.stream()))), 201)

    @routes.get(f"{BASE}/files", response_model=FileList, responses=failures(404, 422, 503), summary="List files")
    async def files(thread: Thread) -> Response:
        """Uploads and artifacts, oldest first."""
        return reply(FileList.model_construct(files=[FileOut.of(one) for one in await threads.files(thread)]))

    @routes.get(
        f"{BASE}/artifacts/{{file_id}}",
        response_class=Response,
        responses=failures(404, 416, 422, 503) | _FILE,
        summary="Download an artifact, or an upload",
    )
    async def download(thread: Thread, file_id: ThreadFileId) -> Response:
        """Knows Range, If-Range and If-None-Match; HEAD works too."""
        return ThreadFileReply(threads, thread, file_id)

    routes.head(f"{BASE}/artifacts/{{file_id}}", include_in_schema=False)(download)

    return routes


class ThreadFileReply(FilePartReply):
    """A reply with a file of a thread."""

    def __init__(self, threads: ThreadService, thread: ThreadRef, file_id: str) -> None:
        super().__init__()
        self._threads = threads
        self._thread = thread
        self._file_id = file_id

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenFile]:
        async with self._threads.download(self._thread, self._file_id) as download:
            file = download.row
            yield OpenFile(file.name, file.size, f'"{file.sha256[:32]}"', download.read)
