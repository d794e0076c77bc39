"""What an agent says, line by line, as it says it: or that it is silent, or that it has ended."""

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
Said = Attached | Line | ProcessView | int | None
"""See ``follow_lines``."""


async def follow_lines(place: Place, process_id: str, offset: int, quiet: float) -> AsyncGenerator[Said, None]:
    """From ``offset`` on: lines, and

    ``Attached`` first, after which nothing escapes us;
    ``None`` each time that nothing came for ``quiet`` seconds;
    a number of bytes that are lost, since nobody read them in time;
    the process as it ended, at last. One that is not known any more ends it without a word.
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
    """All whole lines that are there now from ``offset`` on, and the process as it was before the last look."""
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
    """The last that a process has written to stderr, or at all: usually why it has ended."""
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
    """The same, and None each time that nothing came for so long. Ends where the process is not known any more."""
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
    """Nobody waits for the next item any more. Two deadlines may come at once, and the second must not cut this short:
    a generator that is still at work cannot be closed."""
    coming.cancel()
    canceled = False
    while not coming.done():
        try:
            await asyncio.wait([coming])
        except asyncio.CancelledError:
            canceled = True
    if not coming.cancelled():
        coming.exception()  # be it just now: nobody is to hear of it
    if canceled:
        raise asyncio.CancelledError
