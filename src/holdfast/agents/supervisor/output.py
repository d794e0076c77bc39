"""Follows the output of an agent's process, line by line, and reports silence and the end of the process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from holdfast.agents.base import Place
from holdfast.agents.supervisor.lines import Lines, OutputLine, lines_of
from holdfast.concurrency import next_or_silence
from holdfast.errors import AgentDown, ProcessNotFound
from holdfast.protocol.messages import STDERR
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessView

_READ_BYTES = 1 << 20
_COMPLAINT_WINDOW = 64 << 10
_COMPLAINT_BYTES = 2000

OutputItem = Attached | OutputLine | ProcessView | int | None
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
    try:
        async with contextlib.aclosing(next_or_silence(output, quiet)) as items:
            async for item in items:
                if not isinstance(item, Chunk):
                    yield item
                    continue
                if item.dropped:
                    yield item.dropped
                async for line in lines_of(lines, item):
                    yield line
    except ProcessNotFound:
        return


async def read_lines(place: Place, process_id: str, offset: int) -> tuple[list[OutputLine], ProcessView]:
    """Read all complete lines from ``offset`` on, and return them with the process as it was at the last read."""
    lines, found = Lines(), list[OutputLine]()
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
            place.session_id, view.process_id, offset=max(view.written - _COMPLAINT_WINDOW, 0), limit=_COMPLAINT_WINDOW
        )
    except ProcessNotFound:
        return ""
    said = b"".join(chunk.data for chunk in chunks if chunk.stream == STDERR).strip()
    said = said or b"".join(chunk.data for chunk in chunks).strip()
    return said[-_COMPLAINT_BYTES:].decode(errors="replace").strip()


async def find_process(place: Place, process_id: str) -> ProcessView | None:
    """Find a process; None if the runner does not know it any more."""
    try:
        return await place.sandbox.processes.get(place.session_id, process_id)
    except ProcessNotFound:
        return None


async def require_running(place: Place, process_id: str) -> ProcessView:
    """Return a process that runs, or raise ``AgentDown``."""
    view = await find_process(place, process_id)
    if view is None or not view.running:
        state = "is not there" if view is None else "has ended"
        raise AgentDown(f"the agent's process {state}; the next message starts it")
    return view


@contextlib.asynccontextmanager
async def answer_within(seconds: float, agent: str = "the agent", what: str = "") -> AsyncGenerator[None, None]:
    """Put a deadline on a request to an agent. Raises ``AgentDown`` if the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise AgentDown(
            f"{agent} did not answer{what} within {seconds:.0f} s; the next message starts it again"
        ) from None
