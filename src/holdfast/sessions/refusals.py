"""Why a session cannot be used in the state that it is in, as the error that this state calls for."""

from holdfast.errors import HoldfastError, SessionGone, WrongState
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow


def unusable(row: SessionRow) -> HoldfastError:
    if row.status in (Status.DESTROYING, Status.DESTROYED):
        return SessionGone(f"session {row.id} is {row.status}: {row.reason}; create a new one")
    if row.status == Status.ERROR:
        return WrongState(
            f"session {row.id} is in error ({row.reason}): {row.error}; bring it back from its files with "
            "POST …/restore (`holdfast wake --dead`), or destroy it"
        )
    return WrongState(f"session {row.id} is {row.status}, not active; try again")
