"""Clocks that are set while the daemon runs: what is a duration must not end because of that.

Times in the database are those of the wall clock, so that they mean something to people and after a restart. Here it is
compared with a clock that nobody can set, which also counts while the machine is asleep.
"""

import time
from dataclasses import dataclass

import structlog

from holdfast.sessions.live import Clock

log = structlog.get_logger(__name__)

HARMLESS_SECONDS = 30.0
"""Between two looks: clocks are corrected all the time, and nothing lasts so short that this would matter."""
DOUBT_SECONDS = 86400.0
"""For how long after a jump nothing is removed for its age: whoever set the clock may set it back."""


def boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Look:
    now: float
    """By the wall clock."""
    jumped: float
    """By so many seconds it was set since the last look; 0 where that is harmless."""


class ClockWatch:
    """Without ``steady`` the wall clock is believed: tests set it to let time pass."""

    def __init__(self, clock: Clock, steady: Clock | None) -> None:
        self._clock = clock
        self._steady = steady
        self._offset = clock() - steady() if steady is not None else 0.0
        self._jumped_at: float | None = None

    def look(self) -> Look:
        """Act by ``now`` of what this returns, and not by a clock that may be set right after it."""
        now = self._clock()
        if self._steady is None:
            return Look(now, 0.0)
        steady = self._steady()
        before, self._offset = self._offset, now - steady
        jumped = self._offset - before
        if abs(jumped) < HARMLESS_SECONDS:
            return Look(now, 0.0)
        self._jumped_at = steady
        log.warning("clock.jumped", seconds=round(jumped), meaning="sessions keep the time that they had left")
        return Look(now, jumped)

    @property
    def is_doubtful(self) -> bool:
        """Whether the wall clock was set lately, so that what looks old may not be."""
        if self._steady is None or self._jumped_at is None:
            return False
        return self._steady() < self._jumped_at + DOUBT_SECONDS
