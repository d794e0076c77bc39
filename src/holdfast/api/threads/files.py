"""/v1/threads/{key}/files and artifacts: what goes to the agent with messages, and what it has made."""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from holdfast.api.files.part_reply import FILE_REPLIES, RAW_BODY, FilePartReply, OpenFile
from holdfast.api.threads.common import BASE, Thread, ThreadFileId
from holdfast.api.threads.models import FileList, FileOut
from holdfast.api.wire.common import reply
from holdfast.api.wire.routes import READ, USE, Routes
from holdfast.api.wire.streaming import arriving
from holdfast.api.wire.text import Name
from holdfast.threads.names import ThreadRef
from holdfast.threads.service import ThreadService


def router(threads: ThreadService) -> Routes:
    routes = Routes("threads")

    @routes.post(
        f"{BASE}/files",
        "Upload a file",
        scope=USE,
        returns=FileOut,
        status=201,
        fails=(404, 409, 413, 422, 503),
        extra=RAW_BODY,
    )
    async def upload_thread_file(
        thread: Thread, request: Request, name: Annotated[Name, Query(description="such as report.pdf")]
    ) -> Response:
        """Upload a file that a message can name in its attachments. A thread that is new is made. The file is kept
        whole or not at all."""
        return reply(FileOut.of(await threads.upload(thread, name, arriving(request.stream()))), 201)

    @routes.get(f"{BASE}/files", "List files", scope=READ, returns=FileList, fails=(404, 422, 503))
    async def list_thread_files(thread: Thread) -> Response:
        """List uploads and artifacts, the oldest first."""
        return reply(FileList.model_construct(files=[FileOut.of(one) for one in await threads.files(thread)]))

    @routes.get(
        f"{BASE}/artifacts/{{file_id}}",
        "Download an artifact, or an upload",
        scope=READ,
        head=True,
        fails=(404, 416, 422, 503),
        responses=FILE_REPLIES,
    )
    async def download_artifact(thread: Thread, file_id: ThreadFileId) -> Response:
        """Send an artifact. Range, If-Range, If-None-Match and HEAD work."""
        return ThreadFileReply(threads, thread, file_id)

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
