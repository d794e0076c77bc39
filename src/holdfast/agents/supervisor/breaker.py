"""A circuit breaker for agents that do not come up, or die: restarts have growing pauses, and then stop for a while.

A successful start does not reset it, because an agent may come up each time and die in each turn.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_FAILURES = 3
WINDOW_SECONDS = 600.0
PAUSES = (0.0, 1.0, 4.0)
"""Before the first start, after one that failed, after two."""


@dataclass(slots=True)
class StartBreaker:
    """The circuit breaker of one agent in one channel."""

    clock: Callable[[], float]
    _failures: list[float] = field(default_factory=list)
    why: str = ""
    """The message of the last failure."""

    def record_failure(self, why: str) -> None:
        """Count a failure."""
        self._failures.append(self.clock())
        self.why = why

    @property
    def closed_for(self) -> float:
        """The seconds until a start is allowed again; 0 means now."""
        recent = self._recent()
        return 0.0 if len(recent) < MOST_FAILURES else recent[-MOST_FAILURES] + WINDOW_SECONDS - self.clock()

    @property
    def pause(self) -> float:
        """The seconds to wait before the next start."""
        recent = self._recent()
        if not recent:
            return 0.0
        return max(recent[-1] + PAUSES[min(len(recent), len(PAUSES) - 1)] - self.clock(), 0.0)

    def _recent(self) -> list[float]:
        self._failures = [at for at in self._failures if at > self.clock() - WINDOW_SECONDS]
        return self._failures
