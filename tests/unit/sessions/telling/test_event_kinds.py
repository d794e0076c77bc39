"""What is told of a session's life."""

from holdfast.records.machine import TABLE, Event, Status
from holdfast.sessions.telling.event_kinds import TOLD, EventKind


def test_every_step_says_what_it_tells() -> None:
    assert set(TOLD) == set(Event)


def test_whoever_listens_knows_each_state_that_lasts() -> None:
    """Each status in which a session stays is told when it comes to be; those on the way are not."""
    told = {
        status: {kind for (_, event), to in TABLE.items() if to is status for kind in TOLD[event]} for status in Status
    }
    assert told == {
        Status.CREATING: set(),  # told by the insert
        Status.ACTIVE: {EventKind.ACTIVE, EventKind.RESUMED},
        Status.PAUSING: set(),
        Status.PAUSED: {EventKind.PAUSED},
        Status.RESUMING: set(),
        Status.DESTROYING: set(),
        Status.DESTROYED: {EventKind.DESTROYED},
        Status.ERROR: {EventKind.ERROR},
    }
