"""How often an agent that does not come up, or dies, is started again: with growing pauses, and then not for a while.

A start that went well is no reason to forget what went wrong before: it may come up each time, and die in each turn.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_FAILURES = 3
WINDOW_SECONDS = 600.0
PAUSES = (0.0, 1.0, 4.0)
"""Before the first start, after one that failed, after two."""


@dataclass(slots=True)
class Breaker:
    """Of one agent in one channel."""

    clock: Callable[[], float]
    _failures: list[float] = field(default_factory=list)
    why: str = ""
    """What the last failure said."""

    def failed(self, why: str) -> None:
        self._failures.append(self.clock())
        self.why = why

    @property
    def closed_for(self) -> float:
        """Seconds until the next start may be tried at all; 0: now."""
        recent = self._recent()
        return 0.0 if len(recent) < MOST_FAILURES else recent[-MOST_FAILURES] + WINDOW_SECONDS - self.clock()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next start."""
        recent = self._recent()
        if not recent:
            return 0.0
        return max(recent[-1] + PAUSES[min(len(recent), len(PAUSES) - 1)] - self.clock(), 0.0)

    def _recent(self) -> list[float]:
        self._failures = [at for at in self._failures if at > self.clock() - WINDOW_SECONDS]
        return self._failures
