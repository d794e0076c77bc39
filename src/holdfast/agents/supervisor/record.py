"""Saves the events of a finished turn in the agent's own directory.

The runner, or the agent's server, keeps an agent's output only as long as it lives itself. A later reader of the
turn gets the same events from this record.
"""

import json
from collections.abc import Sequence

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.turn_events import Kind, TurnEvent, characters, check

DIRECTORY = "turns"
MOST_RECORDS = 20
"""Only the newest turns are needed: the events of older ones are in the daemon's store by then."""
_LISTED = 1000
_MOST_CHARACTERS = 10_000_000
"""Of one turn. A longer turn is not recorded, and not held in the daemon's memory either."""


class Recording:
    """The events of a turn so far, to be saved at its end; ``whole`` is False if some are missing."""

    def __init__(self) -> None:
        self.told: list[AgentEvent] = []
        self.whole = True
        self._characters = 0

    def add(self, told: AgentEvent) -> None:
        if self.whole:
            self.told.append(told)
            self._characters += characters(told.event.data)
            if self._characters > _MOST_CHARACTERS:
                self.lose()

    def lose(self) -> None:
        """Give the recording up, because an event is missing or there is too much."""
        self.whole = False
        self.told.clear()


async def save(place: Place, directory: str, turn: str, told: Sequence[AgentEvent]) -> None:
    """Write the record of a turn."""
    lines = [{"cursor": one.cursor, "kind": one.event.kind.value, "data": one.event.data} for one in told]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    await write_file(place, f"{directory}/{DIRECTORY}/{turn}", data)


async def load(place: Place, directory: str, turn: str) -> list[AgentEvent] | None:
    """Read the record of a turn. None if there is none or it is not valid; a sandbox may have written anything."""
    data = await find_file(place, f"{directory}/{DIRECTORY}/{turn}")
    if data is None:
        return None
    try:
        return [_event(line) for line in data.splitlines()]
    except ValueError:
        return None


def _event(line: bytes) -> AgentEvent:
    match parse(line):
        case {"cursor": str(cursor), "kind": str(kind), "data": dict(data)}:
            return AgentEvent(Cursor(cursor), check(TurnEvent(Kind(kind), data)))
    raise ValueError("no event")


async def prune(place: Place, directory: str) -> None:
    """Remove all records but the newest."""
    files, where = place.sandbox.files, f"{directory}/{DIRECTORY}"
    await files.mkdir(place.session_id, where, parents=True, mode=0o700)
    entries, _ = await files.list(place.session_id, Search(where, limit=_LISTED))
    for entry in sorted(entries, key=lambda entry: entry.mtime_ns, reverse=True)[MOST_RECORDS:]:
        await files.remove(place.session_id, entry.path, recursive=False)
