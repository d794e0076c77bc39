"""Events as they look on the wire."""

from typing import Annotated, Any

from pydantic import BaseModel

from holdfast.api.wire.models import From, Output
from holdfast.api.wire.sse import Event
from holdfast.api.wire.text import Timestamp
from holdfast.records.events import EventPage, EventRow
from holdfast.sessions.telling.events import Gap

SESSION = "session"
"""One name for all of them in a stream: ``error`` is what a stream that breaks off ends with."""
THREAD = "thread"
"""And one for those of threads: who listens to sessions does not hear of them."""
GAP = "gap"


def _or_none(session_id: str) -> str | None:
    return session_id or None


class EventOut(Output, record=EventRow):
    """``data`` is the session right after it: status, reason, error, image and metadata. Of a thread, whose kinds begin
    with ``thread.``, it is what happened; its ``session_id`` is null while it has no sandbox."""

    seq: int
    kind: str
    session_id: Annotated[str | None, From(by=_or_none)]
    thread_id: str | None = None
    thread_key: str | None = None
    at: Timestamp
    data: dict[str, Any]


class EventList(Output, record=EventPage):
    """``next`` is the ``after`` of the next request. If ``after + 1`` is below ``oldest``, events were missed."""

    events: list[EventOut]
    next: int
    oldest: int
    newest: int


class GapOut(BaseModel):
    """Events after ``after`` are gone; the stream goes on with ``oldest``."""

    after: int
    oldest: int


def in_stream(told: EventRow | Gap) -> Event:
    """The id of an event is its number; that of a gap is the last number that is gone."""
    if isinstance(told, Gap):
        gap = GapOut(after=told.after, oldest=told.oldest)
        return Event(GAP, gap.model_dump_json(), str(told.oldest - 1))
    return Event(SESSION if told.thread_id is None else THREAD, EventOut.of(told).model_dump_json(), str(told.seq))
