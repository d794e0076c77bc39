"""Where a reader of a turn is: what stands in a cursor."""

import re
from dataclasses import dataclass

from holdfast.agents.base import Cursor
from holdfast.errors import AgentFailed

BEGINNING = -1
"""The place of what is told before the agent's first line."""
END = 1 << 62
"""The place of what is told after its last."""

_CURSOR = re.compile(r"(-?[0-9]{1,20}):([0-9]{1,9}):([0-9,]{0,2000})")


@dataclass(frozen=True, slots=True)
class Position:
    """All lines before the one at ``line`` are told, and of that one so many events. ``closed``: numbers of questions
    whose end was told, which has no place among the lines: an answer comes from elsewhere."""

    line: int = BEGINNING
    events: int = 0
    closed: frozenset[int] = frozenset()

    @property
    def cursor(self) -> Cursor:
        return Cursor(f"{self.line}:{self.events}:{','.join(str(one) for one in sorted(self.closed))}")

    def has(self, line: int, event: int) -> bool:
        """Whether this event of this line was told."""
        return line < self.line or (line == self.line and event < self.events)


def position_of(cursor: Cursor) -> Position:
    if not cursor:
        return Position()
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise AgentFailed(f"{cursor[:100]!r} is no cursor of this agent")
    closed = frozenset(int(one) for one in found[3].split(",") if one)
    return Position(int(found[1]), int(found[2]), closed)
