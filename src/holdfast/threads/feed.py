"""Followers of threads. A hundred of one thread cost one look into the store per change, and not a hundred.

Per thread that is followed, one task reads what is new and keeps the last of it in memory. A follower is a number, the
last event it has seen; it takes what comes next from there, or, if it is too far behind, from the store.
"""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import islice

import structlog

from holdfast.errors import BadInput, HoldfastError, ThreadNotFound
from holdfast.records.threads import ThreadEventPage, ThreadEventRow
from holdfast.store import Store
from holdfast.vocabulary.turn_events import characters

log = structlog.get_logger(__name__)

PAGE = 200
_KEPT = 500
_KEPT_CHARS = 8_000_000
"""Of text, in the events of one thread: a single one may hold a million."""
_AGAIN_SECONDS = 1.0


class _Tail:
    """The newest events of one thread, as far as they are in memory: those after ``start``, up to ``end``."""

    def __init__(self, end: int) -> None:
        self.start = self.end = end
        self.events: deque[ThreadEventRow] = deque()
        self.followers = 0
        self.over = False
        self.broken = False
        """Nobody reads on for its followers: they must not wait for what never comes."""
        self.bell = asyncio.Event()
        self.pump: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._chars = 0

    def add(self, events: list[ThreadEventRow]) -> None:
        for event in events:
            self.events.append(event)
            self.end = event.seq
            self._chars += characters(event.data)
        while len(self.events) > _KEPT or self._chars > _KEPT_CHARS:
            oldest = self.events.popleft()
            self.start = oldest.seq
            self._chars -= characters(oldest.data)
        self.poke()

    def poke(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def after(self, seq: int) -> list[ThreadEventRow]:
        """Return those after a number: numbers have no holes, so the place of each is known."""
        return list(islice(self.events, seq - self.start, seq - self.start + PAGE))

    def news(self) -> asyncio.Event:
        return self._news


class Feed:
    """The events of all daemons' threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[str, _Tail] = {}
        self._closed = False

    def close(self) -> None:
        """End every ``follow``: readers shall go to the next daemon."""
        self._closed = True
        for tail in self._tails.values():
            tail.poke()

    async def page(self, thread_id: str, after: int, limit: int) -> ThreadEventPage:
        page = await self._store.thread_events.page(thread_id, after=after, limit=limit)
        if after > page.newest or after < 0:
            raise BadInput(f"after: {after} is beyond the newest event of this thread, which is {page.newest}")
        return page

    async def follow(self, thread_id: str, after: int) -> AsyncGenerator[ThreadEventRow, None]:
        """Yield events in order, each once; ends with the thread, or when the daemon stops."""
        await self.page(thread_id, after, 1)
        async with self._tail(thread_id) as tail:
            while not self._closed:
                news = tail.news()  # before looking: what is added from now on sets it
                behind = after < tail.start
                events = (await self.page(thread_id, after, PAGE)).events if behind else tail.after(after)
                for event in events:
                    yield event
                    after = event.seq
                if not events:
                    if tail.over:
                        return
                    if tail.broken:
                        raise HoldfastError("the thread's events cannot be read; the daemon's log says why")
                    await news.wait()

    @contextlib.asynccontextmanager
    async def _tail(self, thread_id: str) -> AsyncIterator[_Tail]:
        tail = self._tails.get(thread_id)
        if tail is None:
            newest = await self._store.thread_events.newest(thread_id)
            tail = self._tails.setdefault(thread_id, _Tail(newest))
        tail.followers += 1
        if tail.followers == 1:
            # For all followers, so in none's context: the log would name the first one's request.
            tail.pump = asyncio.create_task(self._pump(thread_id, tail), context=contextvars.Context())
        try:
            yield tail
        finally:
            tail.followers -= 1
            if tail.followers == 0:
                if tail.pump is not None:
                    tail.pump.cancel()
                if self._tails.get(thread_id) is tail:
                    del self._tails[thread_id]

    async def _pump(self, thread_id: str, tail: _Tail) -> None:
        with self._store.watch.listening(thread_id, tail.bell.set):
            while True:
                tail.bell.clear()
                try:
                    await self._catch_up(thread_id, tail)
                except ThreadNotFound:
                    tail.over = True
                    tail.poke()
                    return
                except HoldfastError as error:  # the database is away: it is waited for
                    log.warning("thread.feed.waits", thread_id=thread_id, error=error.message)
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                except Exception:
                    log.exception("thread.feed.failed", thread_id=thread_id)
                    tail.broken = True
                    tail.poke()
                    return
                await tail.bell.wait()

    async def _catch_up(self, thread_id: str, tail: _Tail) -> None:
        while True:
            page = await self._store.thread_events.page(thread_id, after=tail.end, limit=PAGE)
            if page.events:
                tail.add(page.events)
            if not page.full:
                return
