"""What a service of a session can go through, as data. Pure.

::

    stopped ──start──► starting ──answered──► ready
       ▲                  │                     │
       │◄───── stop, end, sleep ────────────────┤        (a clean end while it starts is a failure)
       │                  ▼                     ▼
       └── stop, sleep ─ failed ◄──── die ──────┘
                          └──start──► starting
"""

import signal
from dataclasses import dataclass
from enum import StrEnum

_CLEAN = (0, 143)
"""Exit codes of a program that ended because it, or somebody, wanted it: by itself, or by TERM."""
_KILLED = 137


class ServiceState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


class ServiceEvent(StrEnum):
    START = "start"
    ANSWERED = "answered"
    LATE = "late"
    """It has not answered in time."""
    ENDED = "ended"
    """Its process has ended with nothing wrong."""
    DIED = "died"
    STOP = "stop"
    SLEEP = "sleep"
    """The session fell asleep or is gone, and its processes with it."""


S, E = ServiceState, ServiceEvent

TABLE: dict[ServiceState, dict[ServiceEvent, ServiceState]] = {
    S.STOPPED: {E.START: S.STARTING, E.DIED: S.FAILED, E.STOP: S.STOPPED, E.SLEEP: S.STOPPED},
    S.STARTING: {
        E.ANSWERED: S.READY,
        E.LATE: S.FAILED,
        E.ENDED: S.FAILED,
        E.DIED: S.FAILED,
        E.STOP: S.STOPPED,
        E.SLEEP: S.STOPPED,
    },
    S.READY: {E.ENDED: S.STOPPED, E.DIED: S.FAILED, E.STOP: S.STOPPED, E.SLEEP: S.STOPPED},
    S.FAILED: {E.START: S.STARTING, E.STOP: S.STOPPED, E.SLEEP: S.STOPPED},
}
"""A service that is found dead goes from stopped to failed: it died before anybody looked."""


def next_state(state: ServiceState, event: ServiceEvent) -> ServiceState:
    """Return the state after an event. Raises ``ValueError`` for one that cannot happen in this state."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise ValueError(f"a service that is {state} cannot take the event {event}") from None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended, and what that means."""

    exit_code: int
    had_oom: bool = False
    """While it ran, the kernel killed something in its session for want of memory."""

    @property
    def event(self) -> ServiceEvent:
        return E.ENDED if self.exit_code in _CLEAN else E.DIED

    @property
    def reason(self) -> str:
        if self.had_oom and self.exit_code == _KILLED:
            return "it was killed because the session had no memory left; make a session with more memory_mb"
        how = f"it ended by itself with exit code {self.exit_code}"
        if self.exit_code > 128:
            how = f"it was ended by {_signal_name(self.exit_code - 128)} (exit code {self.exit_code})"
        if self.had_oom and self.event is E.DIED:
            how += ", after something in the session was killed for want of memory"
        return how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
