"""The life of a session, as data.

A session is in exactly one status. Things that happen to it are events. ``TABLE`` says which event may happen in
which status and where it leads; every other pair raises ``WrongState`` and changes nothing. The store repeats the
same guard in the UPDATE itself, so that two daemons with different memories of a row cannot both win.

::

    creating ──started──► active ──pause──► pausing ──paused──► paused ──resume──► resuming ──resumed──► active
       │                    │ ◄───gave_up──────┘                  ▲──────gave_up──────┘
       └──────failed────────┴──────failed, from any of these──────► error
    any of these ──destroy──► destroying ──gone──► destroyed                    error ──revive──► resuming

``error`` keeps the row and its reason until somebody destroys it, or asks for what is left of it (``revive``: from its
files, under the same id): a crash is reported, not papered over.
``destroyed`` is the end; ``destroy`` there is allowed and does nothing, so that deleting twice is safe.
"""

from enum import StrEnum

from holdfast.errors import WrongState


class Status(StrEnum):
    CREATING = "creating"
    ACTIVE = "active"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"
    ERROR = "error"


class Event(StrEnum):
    STARTED = "started"
    FAILED = "failed"
    PAUSE = "pause"
    PAUSED = "paused"
    RESUME = "resume"
    RESUMED = "resumed"
    GAVE_UP = "gave_up"
    REVIVE = "revive"
    DESTROY = "destroy"
    GONE = "gone"


class Reason(StrEnum):
    """Why a session is in ``error``, ``destroying`` or ``destroyed``."""

    REQUESTED = "requested"
    EXPIRED = "expired"
    CRASHED = "crashed"
    LOST = "lost"
    CREATE_FAILED = "create_failed"


class PausedAs(StrEnum):
    FROZEN = "frozen"
    MEMORY = "memory"
    FILES = "files"


LIVE = frozenset(Status) - {Status.DESTROYED}
"""Statuses that count against ``max_sessions`` and may own a sandbox."""

TABLE: dict[tuple[Status, Event], Status] = {
    (Status.CREATING, Event.STARTED): Status.ACTIVE,
    (Status.CREATING, Event.FAILED): Status.ERROR,
    (Status.ACTIVE, Event.FAILED): Status.ERROR,
    (Status.ACTIVE, Event.PAUSE): Status.PAUSING,
    (Status.PAUSING, Event.PAUSED): Status.PAUSED,
    (Status.PAUSING, Event.GAVE_UP): Status.ACTIVE,
    (Status.PAUSING, Event.FAILED): Status.ERROR,
    (Status.PAUSED, Event.RESUME): Status.RESUMING,
    (Status.PAUSED, Event.FAILED): Status.ERROR,
    (Status.RESUMING, Event.RESUMED): Status.ACTIVE,
    (Status.RESUMING, Event.GAVE_UP): Status.PAUSED,
    (Status.RESUMING, Event.FAILED): Status.ERROR,
    (Status.ERROR, Event.REVIVE): Status.RESUMING,
    (Status.DESTROYING, Event.GONE): Status.DESTROYED,
    (Status.DESTROYED, Event.DESTROY): Status.DESTROYED,
    **{(status, Event.DESTROY): Status.DESTROYING for status in LIVE},
}


def next_status(status: Status, event: Event) -> Status:
    """Return where ``event`` leads from ``status``; raises ``WrongState`` if it may not happen there."""
    try:
        return TABLE[status, event]
    except KeyError:
        raise WrongState(f"a session that is {status} cannot take the event {event}") from None


def sources(event: Event) -> frozenset[Status]:
    """Return the statuses in which ``event`` may happen: what a guarded UPDATE puts into its WHERE."""
    return frozenset(status for status, seen in TABLE if seen is event)
