"""The position of a reader in a turn, and its form as a cursor."""

import re
from dataclasses import dataclass

from holdfast.agents.base import Cursor
from holdfast.errors import AgentFailed

BEGINNING = -1
"""The line number of events before the agent's first line."""
END = 1 << 62
"""The line number of events after its last line."""

_CURSOR = re.compile(r"(-?[0-9]{1,20}):([0-9]{1,9}):([0-9,]{0,2000})")


@dataclass(frozen=True, slots=True)
class Position:
    """The position after all events of the lines before ``line``, and after the first ``events`` of that line.

    ``closed`` has the numbers of the questions whose end was reported; that has no place among the lines, because an
    answer does not come from the agent.
    """

    line: int = BEGINNING
    events: int = 0
    closed: frozenset[int] = frozenset()

    @property
    def cursor(self) -> Cursor:
        return Cursor(f"{self.line}:{self.events}:{','.join(str(one) for one in sorted(self.closed))}")

    def has(self, line: int, event: int) -> bool:
        """Say whether this event of this line was read."""
        return line < self.line or (line == self.line and event < self.events)


def position_of(cursor: Cursor) -> Position:
    if not cursor:
        return Position()
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise AgentFailed(f"{cursor[:100]!r} is no cursor of this agent")
    closed = frozenset(int(one) for one in found[3].split(",") if one)
    return Position(int(found[1]), int(found[2]), closed)
