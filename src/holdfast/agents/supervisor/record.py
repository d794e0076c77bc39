"""One turn's events as they were told, kept in the agent's own directory once the turn is over.

What an agent has said is kept by the runner, or by the agent's server, only as long as that lives. Whoever asks for
the turn again after that is told the same from here.
"""

import json
from collections.abc import Sequence

from holdfast.agents.base import Cursor, Place, Told
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.turn_events import Kind, TurnEvent, characters, check

DIRECTORY = "turns"
KEPT = 20
"""Of the newest turns: nobody asks for others again, since their events are stored by then."""
_LISTED = 1000
_MOST_CHARACTERS = 10_000_000
"""Of one turn: what says more is not kept, neither here nor in the daemon's memory meanwhile."""


class Recording:
    """What was told of a turn so far, to be saved at its end; ``whole``: if nothing is missing."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.whole = True
        self._characters = 0

    def add(self, told: Told) -> None:
        if self.whole:
            self.told.append(told)
            self._characters += characters(told.event.data)
            if self._characters > _MOST_CHARACTERS:
                self.lose()

    def lose(self) -> None:
        """Something is missing, or too much: the rest is of no use."""
        self.whole = False
        self.told.clear()


async def save(place: Place, directory: str, turn: str, told: Sequence[Told]) -> None:
    lines = [{"cursor": one.cursor, "kind": one.event.kind.value, "data": one.event.data} for one in told]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    await write_file(place, f"{directory}/{DIRECTORY}/{turn}", data)


async def load(place: Place, directory: str, turn: str) -> list[Told] | None:
    """None where there is none, or none that makes sense: it comes from a sandbox."""
    data = await find_file(place, f"{directory}/{DIRECTORY}/{turn}")
    if data is None:
        return None
    try:
        return [_told(line) for line in data.splitlines()]
    except ValueError:
        return None


def _told(line: bytes) -> Told:
    match parse(line):
        case {"cursor": str(cursor), "kind": str(kind), "data": dict(data)}:
            return Told(Cursor(cursor), check(TurnEvent(Kind(kind), data)))
    raise ValueError("no event")


async def prune(place: Place, directory: str) -> None:
    """Forget all but the newest."""
    files, where = place.sandbox.files, f"{directory}/{DIRECTORY}"
    await files.mkdir(place.session_id, where, parents=True, mode=0o700)
    entries, _ = await files.list(place.session_id, Search(where, limit=_LISTED))
    for entry in sorted(entries, key=lambda entry: entry.mtime_ns, reverse=True)[KEPT:]:
        await files.remove(place.session_id, entry.path, recursive=False)
