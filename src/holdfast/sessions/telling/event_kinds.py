"""What is told to the world of a session's life, as data: the kinds of events, and which step tells which."""

from enum import StrEnum

from holdfast.records.machine import Event


class EventKind(StrEnum):
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
    TUNNELS = "tunnels"
    GATEWAY_OPENED = "gateway.opened"
    GATEWAY_REFUSED = "gateway.refused"
    SERVICE_STARTED = "service.started"
    SERVICE_READY = "service.ready"
    SERVICE_STOPPED = "service.stopped"
    SERVICE_FAILED = "service.failed"


TOLD: dict[Event, tuple[EventKind, ...]] = {
    Event.STARTED: (EventKind.ACTIVE,),
    Event.FAILED: (EventKind.ERROR,),
    Event.PAUSE: (),
    Event.PAUSED: (EventKind.PAUSED,),
    Event.RESUME: (),
    Event.RESUMED: (EventKind.RESUMED,),
    Event.GAVE_UP: (),
    Event.REVIVE: (),
    Event.DESTROY: (),
    Event.GONE: (EventKind.DESTROYED,),
}
"""What is told of each step of the machine. Steps on the way to somewhere are not."""
