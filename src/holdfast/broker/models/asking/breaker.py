"""Circuit breakers: a provider that fails again and again is left alone for a while, and then tried with one call.

::

    closed ──N failures in a row, within the window──► open ──time──► half open ──success──► closed
                                                        ▲                │
                                                        └────failure─────┘
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_KEPT = 4
"""Times as many failures as it takes: those of one thread must not push out all others."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    failures: int = 5
    window_seconds: float = 60.0
    open_seconds: float = 30.0


class Breaker:
    """The circuit breaker of one provider."""

    def __init__(self, settings: BreakerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._failures: deque[tuple[float, str | None]] = deque(maxlen=_KEPT * settings.failures)
        self._open_until: float | None = None
        self._probe_until = 0.0

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def seconds_left(self) -> float:
        """Return the seconds until the next call is let through; 0 means now."""
        if self._open_until is None:
            return 0.0
        return max(self._open_until - self._clock(), self._probe_until - self._clock(), 0.0)

    def lets_through(self) -> bool:
        """Say whether to try. Of an open breaker, the one who is told yes is its probe, and tells how it went."""
        if self._open_until is None:
            return True
        if self.seconds_left() > 0:
            return False
        # A probe that is never heard of again does not keep it closed for ever.
        self._probe_until = self._clock() + self._settings.open_seconds
        return True

    def succeeded(self) -> None:
        self._failures.clear()
        self._open_until = None
        self._probe_until = 0.0

    def undecided(self) -> None:
        """Note a call that has shown neither success nor failure: the next one may be the probe."""
        self._probe_until = 0.0

    def failed(self, seen_by: str | None = None) -> None:
        """Count a failure. ``seen_by`` is a thread whose question may be the reason: it counts only if another thread
        sees them, too. One thread must not close a provider for all."""
        now = self._clock()
        self._probe_until = 0.0
        if self._open_until is not None:
            self._open_until = now + self._settings.open_seconds
            return
        self._failures.append((now, seen_by))
        recent = [by for at, by in self._failures if now - at <= self._settings.window_seconds]
        shared = len({by for by in recent if by is not None}) > 1
        if sum(by is None or shared for by in recent) >= self._settings.failures:
            self._open_until = now + self._settings.open_seconds
