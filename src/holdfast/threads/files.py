"""Files of threads: attachments on their way into the sandbox, artifacts on their way out."""

from collections.abc import AsyncIterator

from holdfast.threads.types import FileView


class Download:
    """A file that is open: what it is, and any part of it."""

    def __init__(self, view: FileView) -> None:
        self.view = view

    async def read(self, start: int, count: int) -> AsyncIterator[bytes]:
        raise NotImplementedError
        yield
