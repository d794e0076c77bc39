"""Events of the daemon's log, as the store keeps them, and how far each webhook has been sent them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event. ``data`` is how the session was right after it; ``owner`` is whose session it is, if anybody's.

    An event of a thread names the thread; its ``session_id`` is that of the sandbox, or empty where there is none.
    """

    seq: int
    kind: str
    session_id: str
    at: float
    data: Mapping[str, object]
    owner: str | None = None
    thread_id: str | None = None
    thread_key: str | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is about to be written, along with the change that it tells of."""

    kind: str
    session_id: str
    data: Mapping[str, object]
    owner: str | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a number, and what the log looked like in the moment of reading them."""

    events: list[EventRow]
    next: int
    """The number to read on after. It grows also when nothing in between was wanted."""
    oldest: int
    """The smallest number that is still kept; one above ``newest`` if none is."""
    newest: int

    def lost(self, after: int) -> bool:
        """Say whether events after this number are no longer kept."""
        return after + 1 < self.oldest


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCursor:
    """One webhook: all events up to ``seq`` are sent. ``failures`` counts the tries in a row that failed since."""

    id: str
    seq: int
    failures: int
    next_try_at: float
    lease_owner: str | None
    lease_expires_at: float
    updated_at: float
