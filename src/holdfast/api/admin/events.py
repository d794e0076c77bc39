"""/v1/events: what happens to sessions and threads, as it happens or page by page."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.settings import ApiSettings
from holdfast.api.wire.common import reply
from holdfast.api.wire.models import From, Output
from holdfast.api.wire.patterns import GIVEN_ID
from holdfast.api.wire.routes import READ, Routes
from holdfast.api.wire.sse import EventStream, ServerEvent
from holdfast.api.wire.text import Timestamp
from holdfast.errors import BadInput
from holdfast.records.events import EventPage, EventRow
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.telling.events import EventFeed, Filter, Gap
from holdfast.store import ThreadKind
from holdfast.vocabulary.thread_keys import MAX_KEY

SESSION = "session"
"""One name for all of them in a stream: ``error`` is what a stream that breaks off ends with."""
THREAD = "thread"
"""And one for those of threads: who listens to sessions does not hear of them."""
GAP = "gap"


def _or_none(session_id: str) -> str | None:
    return session_id or None


class EventOut(Output, record=EventRow):
    """One event. ``data`` is the session right after it: status, reason, error, image and metadata.

    The kinds of a thread's events begin with ``thread.``; there ``data`` says what happened, and ``session_id`` is null
    while the thread has no sandbox.
    """

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


class GapOut(Output, record=Gap):
    """Events after ``after`` are gone; the stream goes on with ``oldest``."""

    after: int
    oldest: int


def in_stream(told: EventRow | Gap) -> ServerEvent:
    """Return the event as it is sent. Its id is its number; the id of a gap is the last number that is gone."""
    if isinstance(told, Gap):
        return ServerEvent(GAP, GapOut.of(told).model_dump_json(), str(told.oldest - 1))
    return ServerEvent(
        SESSION if told.thread_id is None else THREAD, EventOut.of(told).model_dump_json(), str(told.seq)
    )


MAX_SEQ = 10**18
KINDS = [*map(str, EventKind), *map(str, ThreadKind)]

_REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EventList,
        "description": "A stream without end; with follow=false, one page as JSON",
        "content": {"text/event-stream": {"schema": EventOut.model_json_schema()}},
    }
}


def router(events: EventFeed, settings: ApiSettings) -> Routes:
    routes = Routes("events")

    @routes.get("/v1/events", "What happens to sessions and threads", scope=READ, fails=(422, 503), responses=_REPLY)
    async def follow_events(
        caller: CallerOf,
        after: Annotated[
            int | None, Query(ge=0, le=MAX_SEQ, description="From the event after this one; without: the oldest kept")
        ] = None,
        session_id: Annotated[str | None, Query(pattern=GIVEN_ID, description="Of this one only")] = None,
        thread: Annotated[
            str | None, Query(min_length=1, max_length=MAX_KEY, description="Of the thread with this key only")
        ] = None,
        kind: Annotated[
            list[str] | None,
            Query(description="Only these kinds; repeat it or separate them by commas: " + ", ".join(KINDS)),
        ] = None,
        limit: Annotated[int | None, Query(ge=1, le=settings.max_page, description="End after so many")] = None,
        follow: Annotated[bool, Query(description="Wait for what is yet to happen")] = True,
        last_event_id: Annotated[
            str | None, Header(description="What a browser sends when it comes back; it wins over after")
        ] = None,
    ) -> Response:
        """Every event has a number, ``seq``. Numbers grow without holes, and each event comes once, in their order."""
        owner = None if caller.sees_all else caller.owner
        wanted = Filter(session_id=session_id, thread_key=thread, kinds=kinds(kind), owner=owner)
        begin = after if last_event_id is None else number(last_event_id)
        if not follow:
            return reply(EventList.of(await events.page(begin, limit or settings.default_page, wanted)))
        await events.page(begin, 1, wanted)  # a wrong number is an error reply, and not the end of a stream
        return EventStream(stream(events, begin, wanted, limit))

    return routes


async def stream(
    events: EventFeed, after: int | None, wanted: Filter, limit: int | None
) -> AsyncGenerator[ServerEvent, None]:
    sent = 0
    async with aclosing(events.follow(after, wanted)) as following:
        async for told in following:
            yield in_stream(told)
            sent += isinstance(told, EventRow)
            if sent == limit:
                return


def number(last_event_id: str) -> int | None:
    """Read ``Last-Event-ID``. A browser sends an empty one before the first event."""
    if last_event_id == "":
        return None
    if not re.fullmatch(r"[0-9]{1,18}", last_event_id):
        raise BadInput("Last-Event-ID: must be the id of an event of this stream, which is a number")
    return int(last_event_id)


def kinds(given: Sequence[str] | None) -> list[str] | None:
    """Read ``?kind=a&kind=b,c``. Nothing named means all."""
    names = [name for text in given or () for part in text.split(",") if (name := part.strip())]
    if any(name not in KINDS for name in names):
        raise BadInput(f"kind: must be one of {', '.join(KINDS)}")
    return list(dict.fromkeys(names)) or None
