"""Counts what happened in the last minute, by key. A restart forgets it."""

from collections import deque
from collections.abc import Callable

from holdfast.concurrency import Bounded

SECONDS = 60.0
MOST_KEYS = 20_000


class _Window:
    __slots__ = ("entries", "total")

    def __init__(self) -> None:
        self.entries: deque[tuple[float, int]] = deque()
        self.total = 0


class Windows:
    """One sliding window per key."""

    def __init__(self, clock: Callable[[], float], seconds: float = SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._windows = Bounded[str, _Window](MOST_KEYS)

    def add(self, key: str, amount: int = 1) -> int:
        """Add an amount, and return the new sum."""
        window = self._windows.setdefault(key, _Window())
        self._forget_old(window)
        window.entries.append((self._clock(), amount))
        window.total += amount
        return window.total

    def total(self, key: str) -> int:
        window = self._windows.get(key)
        if window is None:
            return 0
        self._forget_old(window)
        return window.total

    def seconds_until_below(self, key: str, limit: int) -> float:
        """Return the seconds until the sum is below ``limit``, if nothing is added; 0 if it is."""
        window = self._windows.get(key)
        if limit <= 0:
            return self._seconds
        if window is None:
            return 0.0
        self._forget_old(window)
        total = window.total
        for at, amount in window.entries:
            if total < limit:
                break
            total -= amount
            left = at + self._seconds - self._clock()
            if total < limit:
                return max(left, 0.0)
        return 0.0 if total < limit else self._seconds

    def _forget_old(self, window: _Window) -> None:
        before = self._clock() - self._seconds
        while window.entries and window.entries[0][0] <= before:
            window.total -= window.entries.popleft()[1]
