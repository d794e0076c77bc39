"""Follows the output of an agent's process, line by line, and reports silence and the end of the process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from holdfast.agents.base import Place
from holdfast.agents.supervisor.lines import Line, Lines, lines_of
from holdfast.errors import ProcessNotFound
from holdfast.protocol.messages import STDERR
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessView

_READ_BYTES = 1 << 20
_COMPLAINT_WINDOW = 64 << 10
_COMPLAINT_BYTES = 2000

Item = Attached | Chunk | ProcessView
OutputItem = Attached | Line | ProcessView | int | None
"""See ``follow_lines``."""


async def follow_lines(place: Place, process_id: str, offset: int, quiet: float) -> AsyncGenerator[OutputItem, None]:
    """Yield the lines from ``offset`` on, and besides

    ``Attached`` first, after which no output is missed;
    ``None`` each time that nothing came for ``quiet`` seconds;
    a number of bytes that are lost, because they were not read in time;
    the process as it ended, as the last item. If the process is not known any more, the generator just ends.
    """
    lines = Lines()
    output = place.sandbox.processes.follow(place.session_id, process_id, offset=offset)
    async with contextlib.aclosing(or_silence(output, quiet)) as items:
        async for item in items:
            if not isinstance(item, Chunk):
                yield item
                continue
            if item.dropped:
                yield item.dropped
            async for line in lines_of(lines, item):
                yield line


async def read_lines(place: Place, process_id: str, offset: int) -> tuple[list[Line], ProcessView]:
    """Read all complete lines from ``offset`` on, and return them with the process as it was at the last read."""
    lines, found = Lines(), list[Line]()
    while True:
        chunks, view = await place.sandbox.processes.read(
            place.session_id, process_id, offset=offset, limit=_READ_BYTES
        )
        for chunk in chunks:
            found += [line async for line in lines_of(lines, chunk)]
            offset = chunk.end
        if not chunks or offset >= view.written:
            return found, view


async def complaint(place: Place, view: ProcessView) -> str:
    """Read the end of a process's stderr, or of its stdout if stderr is empty: usually it says why the process
    ended."""
    try:
        chunks, _ = await place.sandbox.processes.read(
            place.session_id,
            view.process_id,
            offset=max(view.written - _COMPLAINT_WINDOW, 0),
            limit=_COMPLAINT_WINDOW,
        )
    except ProcessNotFound:
        return ""
    said = b"".join(chunk.data for chunk in chunks if chunk.stream == STDERR).strip()
    said = said or b"".join(chunk.data for chunk in chunks).strip()
    return said[-_COMPLAINT_BYTES:].decode(errors="replace").strip()


async def or_silence(output: AsyncGenerator[Item, None], seconds: float) -> AsyncGenerator[Item | None, None]:
    """Yield the same items, and None each time that nothing came for ``seconds``.

    It ends if the process is not known any more.
    """
    async with contextlib.aclosing(output):
        while True:
            coming = asyncio.ensure_future(anext(output, None))
            try:
                while not (await asyncio.wait([coming], timeout=seconds))[0]:
                    yield None
                item = coming.result()
            except ProcessNotFound:
                return
            finally:
                await let_go(coming)
            if item is None:
                return
            yield item


async def let_go(coming: "asyncio.Future[Any]") -> None:
    """Cancel the wait for the next item, and wait until it has ended.

    A second cancellation in the meantime must not cut this short, because a generator that still runs cannot be closed.
    """
    coming.cancel()
    canceled = False
    while not coming.done():
        try:
            await asyncio.wait([coming])
        except asyncio.CancelledError:
            canceled = True
    if not coming.cancelled():
        coming.exception()  # retrieve it, so that asyncio does not log it
    if canceled:
        raise asyncio.CancelledError
