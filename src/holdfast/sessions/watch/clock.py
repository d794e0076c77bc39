"""Clocks that are set: what is a duration must not end because of that.

Times in the database are those of the wall clock, so that they mean something to people and after a restart. Here it is
compared with a clock that nobody can set, which also counts while the machine is asleep. Both are noted in a file, so
that a wall clock which was set while no daemon ran is found out by the next one.

The steady clock begins anew when the machine starts. How long it was off, only the wall clock could tell, and that is
often wrong just then (an empty battery, no network yet). So the time for which a machine was off does not count:
sessions keep what they had left, and when the clock is put right later, that is a jump as any other.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from holdfast.sessions.types import Clock

log = structlog.get_logger(__name__)

HARMLESS_SECONDS = 30.0
"""Between two looks: clocks are corrected all the time, and nothing lasts so short that this would matter."""
DOUBT_SECONDS = 86400.0
"""For how long after a jump nothing is removed for its age: whoever set the clock may set it back."""


def boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return an id that is another one after each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True, slots=True)
class ClockNote:
    """What both clocks have said at one moment, in which run of the machine."""

    wall: float
    steady: float
    boot: str

    @classmethod
    def read(cls, path: Path) -> "ClockNote | None":
        """None where there is none, or none that can be understood: then the wall clock is believed."""
        try:
            found = json.loads(path.read_text())
            return cls(float(found["wall"]), float(found["steady"]), str(found["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Blocks."""
        scratch = path.with_suffix(".new")
        try:
            scratch.write_text(json.dumps({"wall": self.wall, "steady": self.steady, "boot": self.boot}))
            scratch.rename(path)
        except OSError as error:
            log.warning("clock.note.failed", error=error.strerror, next="tried again next tick")


@dataclass(frozen=True, slots=True)
class Look:
    now: float
    """By the wall clock."""
    jumped: float
    """By so many seconds it was set since the last look; 0 where that is harmless."""


class ClockWatch:
    """Without ``steady`` the wall clock is believed: tests set it to let time pass."""

    def __init__(self, clock: Clock, steady: Clock | None, note: Path | None = None) -> None:
        """``note`` is the file in which an earlier daemon has written down what the clocks said."""
        self._clock = clock
        self._steady = steady
        self._note = note if steady is not None else None
        self._boot = boot_id() if self._note is not None else ""
        self._was_off = False
        self._offset = self._first_offset(steady) if steady is not None else 0.0
        self._jumped_at: float | None = None

    def _first_offset(self, steady: Clock) -> float:
        before = ClockNote.read(self._note) if self._note is not None else None
        if before is None:
            return self._clock() - steady()
        self._was_off = before.boot != self._boot
        return before.wall - (steady() if self._was_off else before.steady)

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
        was_off, self._was_off = self._was_off, False
        meaning = "sessions keep the time that they had left"
        if was_off and 0 < jumped < DOUBT_SECONDS:
            log.info("clock.machine_was_off", seconds=round(jumped), meaning=meaning)
            return Look(now, jumped)
        self._jumped_at = steady
        log.warning("clock.jumped", seconds=round(jumped), meaning=meaning)
        return Look(now, jumped)

    def note(self) -> None:
        """Write down what the clocks say, for the next daemon, once all that follows from it is done. Blocks."""
        if self._note is not None and self._steady is not None:
            steady = self._steady()
            ClockNote(self._offset + steady, steady, self._boot).write(self._note)

    @property
    def is_doubtful(self) -> bool:
        """Whether the wall clock was set lately, so that what looks old may not be."""
        if self._steady is None or self._jumped_at is None:
            return False
        return self._steady() < self._jumped_at + DOUBT_SECONDS
