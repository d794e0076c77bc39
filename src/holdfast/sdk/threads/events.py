"""Following a thread: each event once, in order, whatever becomes of connections and daemons in between."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from holdfast.sdk.connection.following import SILENT_SECONDS
from holdfast.sdk.connection.sse import read_events
from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.results import of_wire
from holdfast.sdk.threads.results import ThreadEvent

IN_STREAM = "thread"
PAGE = 500

Query = dict[str, str | list[str]]


async def stream(
    transport: Transport, path: str, query: Query, after: int | None
) -> AsyncGenerator[ThreadEvent | None, None]:
    """Yield events of one connection; None as soon as it stands. Raises ``ThreadNotFound`` when it is deleted."""
    where: Query = {**query, "after": str(after or 0)}
    async with transport.stream("GET", f"{path}/events/stream", params=where, timeout=SILENT_SECONDS) as response:
        yield None
        async with aclosing(read_events(response)) as events:
            async for event in events:
                if event.kind == IN_STREAM:
                    yield of_wire(ThreadEvent, event.data)


async def pages(transport: Transport, path: str, query: Query, after: int) -> AsyncGenerator[ThreadEvent, None]:
    """Yield what there is, and no more."""
    while True:
        where: Query = {**query, "after": str(after), "limit": str(PAGE)}
        page = await transport.call("GET", f"{path}/events", params=where)
        for told in page["events"]:
            yield of_wire(ThreadEvent, told)
        after = page["next"]
        if not page["events"] or after >= page["newest"]:
            return  # and not where a page is short: that is one of big events
