"""How much memory questions may take: of one sandbox, and of all together. They are kept until they are answered."""

import asyncio
from collections import Counter

SESSION_BYTES = 96 << 20
TOTAL_BYTES = 768 << 20


class NoRoom(Exception):
    """Too much at once. The message says so to who asks."""


class Room:
    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self.one_by_one = asyncio.Semaphore(1)
        """For work on large questions: threads that compute keep the loop from running."""

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
