"""Limits what questions may take: of memory, until they are answered, and of the event loop's time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

SESSION_BYTES = 96 << 20
TOTAL_BYTES = 768 << 20
BYTES_PER_SECOND = 20 << 20
"""With which one sandbox takes about a third of the loop at most."""
SLACK_SECONDS = 1.0
"""So much at once is nobody's business."""
_MOST_KEYS = 1000


class NoRoom(Exception):
    """There is no memory for this question now. The message is for the agent."""


class QuestionMemory:
    """The memory for the questions of one sandbox, and of all together."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self.one_by_one = asyncio.Semaphore(1)
        """For work on large questions: threads that compute keep the loop from running."""
        self.pace = Pace()

    def take(self, session_id: str, size: int) -> None:
        """Raises ``NoRoom``. Whatever was taken is to be given back."""
        if self._taken[session_id] + size > SESSION_BYTES:
            raise NoRoom(
                f"the questions of this sandbox have more than {SESSION_BYTES >> 20} MB; ask one after the other"
            )
        if self._taken.total() + size > TOTAL_BYTES:
            raise NoRoom("too much is being asked at the moment; try again")
        self._taken[session_id] += size

    def give_back(self, session_id: str, size: int) -> None:
        self._taken[session_id] -= size
        if self._taken[session_id] <= 0:
            del self._taken[session_id]


class Pace:
    """Limits how fast one sandbox may ask large questions, because reading them takes time of the event loop."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._busy_until: dict[str, float] = {}

    def wait(self, session_id: str, weight: int) -> float:
        """Count this question, and return for how many seconds it must wait."""
        now = self._clock()
        begin = max(self._busy_until.get(session_id, now), now)
        self._busy_until[session_id] = begin + weight / BYTES_PER_SECOND
        if len(self._busy_until) > _MOST_KEYS:
            self._busy_until = {one: until for one, until in self._busy_until.items() if until > now}
        return max(begin - now - SLACK_SECONDS, 0.0)
