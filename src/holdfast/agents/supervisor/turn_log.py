"""Reads the log of one turn, which something in the sandbox writes: from its file, or live from a process's output.

A line of the output is a note ``{"turn", "start", "end", …}``: where the newest line of the log is, and the line itself
if it is short.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import ClassVar

from holdfast.agents.base import AgentEvent, Place
from holdfast.agents.supervisor.home import read_file
from holdfast.agents.supervisor.lines import JsonObject, OutputLine, parse
from holdfast.agents.supervisor.output import follow_lines
from holdfast.agents.supervisor.supervisor import AgentProcess
from holdfast.errors import AgentDown
from holdfast.sessions.use.processes import ProcessView

Attend = Callable[[Place, AgentProcess], Awaitable[None]]


class TurnLog(ABC):
    """One reader of a log. ``key`` is the name of the turn in notes; ``position`` is the offset to read from."""

    field: ClassVar[str]
    """The field of a note that may contain the line itself."""
    ended: bool

    def __init__(self, place: Place, path: str, key: str, position: int = 0) -> None:
        self.place = place
        self._path = path
        self._key = key
        self.position = position

    @abstractmethod
    def events_of(self, record: JsonObject, start: int) -> Sequence[AgentEvent]:
        """Return the events of the line that begins at ``start`` and ends at ``position``."""

    async def rest(self) -> list[AgentEvent]:
        """Read the rest of the file. A line that is not complete yet is left for later."""
        data = await read_file(self.place, self._path, self.position)
        found: list[AgentEvent] = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            found += self._line(parse(line), len(line))
        return found

    async def take(self, note: JsonObject) -> Sequence[AgentEvent]:
        """Handle a line of the output: the next line itself, or a hint that there is more to read."""
        start, end, record = note.get("start"), note.get("end"), note.get(self.field)
        if note.get("turn") != self._key or not isinstance(end, int) or end <= self.position:
            return []
        if start != self.position or not isinstance(record, dict):
            return await self.rest()
        return self._line(record, end - self.position)

    def _line(self, record: JsonObject | None, size: int) -> Sequence[AgentEvent]:
        start = self.position
        self.position += size
        return [] if record is None else self.events_of(record, start)


async def read_turn(
    log: TurnLog,
    find: Callable[[Place], Awaitable[AgentProcess | None]],
    quiet: float,
    alive: Attend,
    attend: Attend | None = None,
) -> AsyncGenerator[AgentEvent, None]:
    """Yield the events of a turn to its end. Raises ``AgentDown`` if the process ends before.

    ``alive`` is called after each silence of ``quiet`` seconds, and raises if the process does not answer; ``attend``
    is called after each line.
    """
    while True:
        found = await find(log.place)
        for told in await log.rest():
            yield told
        if log.ended:
            return
        if found is None or not found.view.running:
            raise AgentDown("the agent died in the middle of the turn; the next message starts it")
        output = follow_lines(log.place, found.view.process_id, found.view.written, quiet)
        async with contextlib.aclosing(output):
            async for item in output:
                if isinstance(item, ProcessView):
                    break
                if item is None:
                    await alive(log.place, found)
                # After Attached no line is missed; earlier or lost lines are in the file.
                news = await log.take(item.message) if isinstance(item, OutputLine) else await log.rest()
                if attend is not None:
                    await attend(log.place, found)
                for told in news:
                    yield told
                if log.ended:
                    return
