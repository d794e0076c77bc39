"""Following a thread: each event once, in order, whatever becomes of connections and daemons in between."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

from holdfast.errors import Unavailable
from holdfast.sdk.events import read_events
from holdfast.sdk.results import of_wire
from holdfast.sdk.session_events import LONGEST_PAUSE_SECONDS, SILENT_SECONDS
from holdfast.sdk.thread_results import ThreadEvent
from holdfast.sdk.transport import BACKOFF_SECONDS, Transport

IN_STREAM = "thread"
PAGE = 500

Query = dict[str, str | list[str]]


async def follow(
    transport: Transport, path: str, query: Query, after: int, *, known: bool = False
) -> AsyncGenerator[ThreadEvent, None]:
    """For ever: a stream that ends or breaks is taken up again after the last event that came.

    Raises ``ThreadNotFound`` when the thread is deleted. ``known``: there was a daemon a moment ago.
    """
    failures = 0
    while True:
        try:
            async with aclosing(_stream(transport, path, query, after)) as stream:
                async for event in stream:
                    known, failures = True, 0
                    if event is not None and event.seq > after:
                        after = event.seq
                        yield event
        except Unavailable:
            if not known:  # there never was a daemon: say so, as every other call does
                raise
        failures += 1
        pause = min(BACKOFF_SECONDS * 2.0 ** min(failures, 20), LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311


async def _stream(
    transport: Transport, path: str, query: Query, after: int
) -> AsyncGenerator[ThreadEvent | None, None]:
    """One connection; None as soon as it stands."""
    where: Query = {**query, "after": str(after)}
    async with transport.stream("GET", f"{path}/events/stream", params=where, timeout=SILENT_SECONDS) as response:
        yield None
        async with aclosing(read_events(response)) as events:
            async for event in events:
                if event.kind == IN_STREAM:
                    yield of_wire(ThreadEvent, event.data)


async def pages(transport: Transport, path: str, query: Query, after: int) -> AsyncGenerator[ThreadEvent, None]:
    """What there is, and no more."""
    while True:
        where: Query = {**query, "after": str(after), "limit": str(PAGE)}
        page = await transport.call("GET", f"{path}/events", params=where)
        for told in page["events"]:
            yield of_wire(ThreadEvent, told)
        after = page["next"]
        if len(page["events"]) < PAGE:
            return
