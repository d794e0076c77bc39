"""A reply with a file of a thread."""

import contextlib
from collections.abc import AsyncIterator

from holdfast.api.files.part_reply import FilePartReply, OpenFile
from holdfast.threads.names import ThreadRef
from holdfast.threads.service import ThreadService


class ThreadFileReply(FilePartReply):
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
