"""When sessions and threads go to sleep by themselves: their policies, and which step is due. Pure.

A sandbox that nobody uses is frozen (``pause``), later stopped with its files kept (``hibernate``), and at last
destroyed. Sessions and threads have the same three periods and count them from different moments:

| counts from       | pause              | hibernate                  | destroy                    |
| ----------------- | ------------------ | -------------------------- | -------------------------- |
| the step before   | since its last use | since it was frozen        | since it was stopped       |
| the last activity | since its last use | since its last use, frozen | since its last use, in any |
|                   |                    | or not                     | state                      |
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class SleepState(StrEnum):
    """How deeply a sandbox sleeps. Of a thread it is what its owner believes: the session's own row has the truth."""

    AWAKE = "awake"
    PAUSED = "paused"
    HIBERNATED = "hibernated"
    NONE = "none"
    """There is no sandbox: not yet, or no longer."""


class SleepStep(StrEnum):
    PAUSE = "pause"
    HIBERNATE = "hibernate"
    DESTROY = "destroy"


class CountsFrom(StrEnum):
    STEP_BEFORE = "step_before"
    LAST_ACTIVITY = "last_activity"


@dataclass(frozen=True, slots=True)
class SleepPolicy:
    """After how many seconds a session takes each step; None means never.

    Each period begins with the step before it, whether that was taken by this policy or on request.
    """

    counts_from: ClassVar[CountsFrom] = CountsFrom.STEP_BEFORE
    pause_after_seconds: float | None = None
    hibernate_after_seconds: float | None = None
    destroy_after_seconds: float | None = None

    def after(self, step: SleepStep) -> float | None:
        """Return the period before this step."""
        seconds: float | None = getattr(self, f"{step}_after_seconds")
        return seconds


@dataclass(frozen=True, slots=True)
class IdlePolicy(SleepPolicy):
    """A thread's policy: each period counts from its last message or turn, whatever happened in between.

    The transcript and the artifacts stay in any case. 0 for the first two means: as soon as a turn has ended and
    nothing else waits.
    """

    counts_from: ClassVar[CountsFrom] = CountsFrom.LAST_ACTIVITY
    pause_after_seconds: float | None = 30 * 60.0
    hibernate_after_seconds: float | None = 3 * 3600.0
    destroy_after_seconds: float | None = 7 * 24 * 3600.0

    @property
    def at_once(self) -> bool:
        """Whether it goes to sleep right after each turn."""
        return 0 in (self.pause_after_seconds, self.hibernate_after_seconds)


@dataclass(frozen=True, slots=True)
class SleepFacts:
    """How a sandbox sleeps, since when, and when it was last used."""

    state: SleepState
    last_activity_at: float
    asleep_at: float | None = None
    """None: it is awake, or that does not count."""


_NEXT = {
    SleepState.AWAKE: SleepStep.PAUSE,
    SleepState.PAUSED: SleepStep.HIBERNATE,
    SleepState.HIBERNATED: SleepStep.DESTROY,
}
FROM_STATES = {
    SleepStep.DESTROY: (SleepState.AWAKE, SleepState.PAUSED, SleepState.HIBERNATED),
    SleepStep.HIBERNATE: (SleepState.AWAKE, SleepState.PAUSED),
    SleepStep.PAUSE: (SleepState.AWAKE,),
}
"""The states in which each step can be taken, the furthest step first."""


def due(policy: SleepPolicy, facts: SleepFacts, now: float) -> list[SleepStep]:
    """Return the steps whose time has come, the furthest first: who may be destroyed need not be stopped before."""
    if policy.counts_from is CountsFrom.LAST_ACTIVITY:
        steps, since = [step for step, states in FROM_STATES.items() if facts.state in states], facts.last_activity_at
    elif facts.state is SleepState.AWAKE:
        steps, since = [SleepStep.PAUSE], facts.last_activity_at
    elif facts.asleep_at is not None and facts.state in _NEXT:
        steps, since = [_NEXT[facts.state]], facts.asleep_at
    else:
        return []
    return [step for step in steps if (after := policy.after(step)) is not None and since + after <= now]
