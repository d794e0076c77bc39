"""What is told to the world of a session's life, as data: the kinds of events, and which step tells which."""

from enum import StrEnum

from holdfast.records.machine import Event


class Kind(StrEnum):
    CREATED = "created"
    ACTIVE = "active"
    PAUSED = "paused"
    RESUMED = "resumed"
    EXPIRED = "expired"
    OOM = "oom"
    ERROR = "error"
    DESTROYED = "destroyed"
    SNAPSHOT = "snapshot"
    FORKED = "forked"
    READ_ONLY = "read_only"
    DISK_LOW = "disk_low"
    DISK_ROOM = "disk_room"
    STRAY = "stray"
    ADOPTED = "adopted"
    STRAY_REMOVED = "stray_removed"


TOLD: dict[Event, tuple[Kind, ...]] = {
    Event.STARTED: (Kind.ACTIVE,),
    Event.FAILED: (Kind.ERROR,),
    Event.PAUSE: (),
    Event.PAUSED: (Kind.PAUSED,),
    Event.RESUME: (),
    Event.RESUMED: (Kind.RESUMED,),
    Event.GAVE_UP: (),
    Event.REVIVE: (),
    Event.DESTROY: (),
    Event.GONE: (Kind.DESTROYED,),
}
"""What is told of each step of the machine. Steps on the way to somewhere are not."""
