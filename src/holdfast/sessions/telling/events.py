"""What happens to sessions, as others may follow it.

The store keeps the events; a reader is only a number, the last one it has seen. It reads on from there in pages and
then waits until something is added: a slow reader costs nobody anything, and one that was cut off goes on where it was.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from dataclasses import asdict, dataclass

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import BadInput, HoldfastError
from holdfast.records.events import EventPage, EventRow
from holdfast.store import EventStore

PAGE = 200
POLL_SECONDS = 1.0
"""How often to look for what other daemons on the same database have added. Our own changes are known at once."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a reader wants; None is all. ``owner`` is whose sessions and threads it may know of."""

    session_id: str | None = None
    thread_key: str | None = None
    kinds: Collection[str] | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Events after ``after`` are no longer kept; the next one to come is ``oldest`` or later."""

    after: int
    oldest: int


class EventFeed:
    """The events of all daemons on one database. Use ``running()`` around its use."""

    def __init__(self, store: EventStore, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._added = asyncio.Event()
        self._closed = False
        self.waiting = 0
        """How many wait for something to be added."""
        store.listeners.append(self.wake)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        polling = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self.close()
            await cancel_and_wait(polling)

    def close(self) -> None:
        """End every ``follow``: the daemon is stopping, and its readers shall go to the next one."""
        self._closed = True
        self.wake()

    def wake(self) -> None:
        """Let all who wait look again."""
        self._added.set()
        self._added = asyncio.Event()

    async def page(self, after: int | None, limit: int, wanted: Filter) -> EventPage:
        """The next events after a number, without waiting. ``BadInput`` for a number that was never given out."""
        page = await self._store.page(after=after, limit=limit, **asdict(wanted))
        if after is not None and after > page.newest:
            raise BadInput(
                f"after: {after} is beyond the newest event, which is {page.newest}; the number is of another "
                "database, or this one is an older copy: leave it out to read from the oldest event that is kept"
            )
        return page

    async def follow(self, after: int | None, wanted: Filter) -> AsyncGenerator[EventRow | Gap, None]:
        """Yield all events after a number, then those to come; in order, each once. Ends when the feed is closed."""
        while not self._closed:
            added = self._added  # before reading: what is added from now on sets it
            page = await self.page(after, PAGE, wanted)
            if after is not None and page.lost(after):
                yield Gap(after, page.oldest)
            for event in page.events:
                yield event
            after = page.next
            if len(page.events) < PAGE and not self._closed:
                await self._wait(added)

    async def wait_for_change(self, added: asyncio.Event, seconds: float | None) -> None:
        """Wait for ``added``, which ``mark`` has returned, for at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wait(added)

    def mark(self) -> asyncio.Event:
        """Return what to hand to ``wait_for_change``. Call it before you look, so that nothing is missed in between."""
        return self._added

    async def _wait(self, added: asyncio.Event) -> None:
        self.waiting += 1
        try:
            await added.wait()
        finally:
            self.waiting -= 1

    async def _poll(self) -> None:
        seen = -1
        while True:
            await asyncio.sleep(self._poll_seconds)
            if not self.waiting:
                continue
            with contextlib.suppress(HoldfastError):  # the database is away: whoever reads hears of it
                newest = await self._store.newest()
                if newest != seen:
                    seen = newest
                    self.wake()
