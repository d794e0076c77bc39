"""One task of a worker in the sandbox, from the host's side: frames both ways, and a deadline on every wait.

The worker is not trusted: it may send anything, or nothing. It says that it is busy when something takes long.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import ProtocolError, SandboxLost
from holdfast.link.link import Link
from holdfast.link.streams import check, open_stream, read_frame, send_frame
from holdfast.protocol import frames

SILENT_SECONDS = 60.0
"""How long a worker may say nothing, or take nothing in, before the sandbox counts as lost."""
PIECE = 1 << 18


class FileTask:
    """A task that was asked for. Use ``begin``."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def begin(cls, link: Link, name: str, fields: frames.Header) -> AsyncIterator["FileTask"]:
        async with open_stream(link, "fs.open", {}) as (reader, writer):
            task = cls(name, reader, writer)
            await task.send({**fields, "task": name})
            yield task

    async def send(self, header: frames.Header, body: bytes = b"") -> None:
        async with self._patience():
            await send_frame(self._writer, header, body)

    async def next(self, *, for_ever: bool = False) -> frames.Frame:
        """The next frame that is news. Raises the error that the worker tells of. ``for_ever``: silence is fine."""
        while True:
            async with contextlib.nullcontext() if for_ever else self._patience():
                header, body = await read_frame(self._reader)
            if not check(header).get("busy"):
                return header, body

    async def raw(self, count: int) -> AsyncIterator[bytes]:
        """Exactly so many raw bytes, in pieces."""
        while count > 0:
            async with self._patience():
                piece = await self._read(min(count, PIECE))
            if not piece:
                raise SandboxLost("the file ended early: it was changed while it was read, or the sandbox died")
            count -= len(piece)
            yield piece

    async def _read(self, most: int) -> bytes:
        try:
            return await self._reader.read(most)
        except OSError:
            return b""

    async def feed(self, pieces: AsyncIterable[bytes]) -> frames.Header:
        """Send all of it as frames, then the end; returns the answer, which may also come early, as an error."""
        answer = asyncio.ensure_future(self.next(for_ever=True))
        try:
            await self._feed_until(answer, pieces)
            async with self._patience():
                return (await answer)[0]
        finally:
            await cancel_and_wait(answer)

    async def _feed_until(self, answer: "asyncio.Future[frames.Frame]", pieces: AsyncIterable[bytes]) -> None:
        async for piece in pieces:
            if piece and not await self._took({}, piece):
                return
            if answer.done():
                return
        await self._took({"end": True})

    async def _took(self, header: frames.Header, body: bytes = b"") -> bool:
        """False if the worker takes no more; why, it has told already, or its silence will."""
        try:
            for start in range(0, len(body) or 1, PIECE):
                await self.send(header, body[start : start + PIECE])
        except SandboxLost:
            return False
        return True

    @contextlib.asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                yield
        except TimeoutError:
            raise SandboxLost(f"the sandbox did nothing for {SILENT_SECONDS:.0f} s during {self._name}") from None


def natural(header: frames.Header, name: str) -> int:
    """Return a number of the worker's answer."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ProtocolError(f"the runner sent no sensible {name}")
    return value
