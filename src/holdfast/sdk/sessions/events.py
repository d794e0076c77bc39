"""What happens to sessions and threads, for those who want to know: ``client.events``."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.sdk.connection.following import SILENT_SECONDS, followed
from holdfast.sdk.connection.sse import WireEvent, read_events
from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.results import of_wire

GAP = "gap"
PAGE = 500

Params = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """``data`` is the session right after it: status, reason, error, image, metadata. Of a thread, whose kinds begin
    with ``thread.``, it is what happened, and ``thread_key`` says to which; ``session_id`` is then that of its sandbox.

    The kind ``gap`` means that events were missed because they are no longer kept: ``seq`` is the last one that is
    gone, and ``session_id`` and ``at`` are None.
    """

    seq: int
    kind: str
    session_id: str | None
    at: datetime | None
    data: Mapping[str, Any]
    thread_id: str | None = None
    thread_key: str | None = None


def session_events(
    transport: Transport, params: Params, after: int | None, *, follow: bool
) -> AsyncGenerator[SessionEvent, None]:
    if follow:
        return followed(lambda last: _stream(transport, params, last), after)
    return _pages(transport, params, after)


async def _stream(transport: Transport, params: Params, after: int | None) -> AsyncGenerator[SessionEvent | None, None]:
    """One connection; None as soon as it stands."""
    where = params if after is None else {**params, "after": str(after)}
    async with transport.stream("GET", "/v1/events", params=where, timeout=SILENT_SECONDS) as response:
        yield None
        async with aclosing(read_events(response)) as events:
            async for event in events:
                yield _of_stream(event)


async def _pages(transport: Transport, params: Params, after: int | None) -> AsyncGenerator[SessionEvent, None]:
    """Yield what there is, and no more."""
    where: Params = {**params, "follow": "false", "limit": str(PAGE)}
    while True:
        if after is not None:
            where["after"] = str(after)
        page = await transport.call("GET", "/v1/events", params=where)
        if after is not None and after + 1 < page["oldest"]:
            yield _gap(after, page["oldest"])
        for told in page["events"]:
            yield of_wire(SessionEvent, told)
        after = page["next"]
        if len(page["events"]) < PAGE:
            return


def _of_stream(event: WireEvent) -> SessionEvent | None:
    if event.kind == GAP:
        return _gap(event.data["after"], event.data["oldest"])
    if event.kind in ("session", "thread"):
        return of_wire(SessionEvent, event.data)
    return None  # of a newer daemon


def _gap(after: int, oldest: int) -> SessionEvent:
    return SessionEvent(oldest - 1, GAP, None, None, {"after": after, "oldest": oldest})
