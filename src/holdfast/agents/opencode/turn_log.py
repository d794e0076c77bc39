"""Reads the record of one turn in the sandbox from its beginning: from its file, or live from the recorder's output."""

import re
from collections.abc import Sequence

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.opencode.mapper import OpenCodeMapper
from holdfast.agents.supervisor import JsonObject, parse
from holdfast.agents.supervisor.home import read_file
from holdfast.errors import AgentFailed, FileMissing
from holdfast.vocabulary.turn_events import check

_CURSOR = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})")


class TurnLog:
    """One reader of the record. A cursor is the offset of a line, and how many of its events were read."""

    def __init__(self, place: Place, path: str, key: str, mapper: OpenCodeMapper, after: Cursor) -> None:
        self._place = place
        self._path = path
        self._key = key
        self._mapper = mapper
        self._after = _position(after)
        self._read = 0

    @property
    def ended(self) -> bool:
        return self._mapper.ended

    async def rest(self) -> Sequence[AgentEvent]:
        """Read the rest of the file. A line that is not complete yet is left for later."""
        try:
            data = await read_file(self._place, self._path, self._read)
        except FileMissing:
            raise AgentFailed("the record of the turn is gone; send the message again") from None
        found: list[AgentEvent] = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            found += self._line(parse(line), len(line))
        return found

    async def take(self, note: JsonObject) -> Sequence[AgentEvent]:
        """Handle a message of the recorder on stdout: the next line itself, or a hint that there is more to read."""
        start, end, record = note.get("start"), note.get("end"), note.get("record")
        if note.get("turn") != self._key or not isinstance(end, int) or end <= self._read:
            return []
        if start != self._read or not isinstance(record, dict):
            return await self.rest()
        return self._line(record, end - self._read)

    def _line(self, record: JsonObject | None, size: int) -> Sequence[AgentEvent]:
        start = self._read
        self._read += size
        events = [] if record is None else self._mapper.feed(record)
        return [
            AgentEvent(Cursor(f"{start}.{count}"), check(event))
            for count, event in enumerate(events, 1)
            if (start, count) > self._after
        ]


def _position(cursor: Cursor) -> tuple[int, int]:
    if not cursor:
        return (0, 0)
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise AgentFailed(f"{cursor!r} is no cursor of OpenCode")
    return (int(found[1]), int(found[2]))
