"""Who wants to know that something happened in a thread: woken at once for this process, within a poll for others.

Polling, and not LISTEN/NOTIFY: it is the same on both databases, needs no connection of its own that must be watched,
and one query asks for all threads that somebody listens to.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import sqlalchemy as sa

from holdfast.errors import HoldfastError
from holdfast.store.database.database import Database
from holdfast.store.threads.tables import threads as table

Wake = Callable[[], None]
EVERY = 0.25
"""How often other daemons' writes are looked for, in seconds."""
_AT_ONCE = 1000
"""So many ids fit into one query."""


class ThreadWatch:
    """Wakes listeners of a thread after it may have got events, messages or requests; sometimes in vain.

    A listener is a plain function, called in the event loop; it sets an event or the like, and must not raise.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: dict[str, list[Wake]] = {}
        self._seen: dict[str, tuple[int, int]] = {}

    @contextmanager
    def listening(self, thread_id: str, wake: Wake) -> Iterator[None]:
        """Have ``wake`` called for this thread from now on. Read once after entering: what was before wakes nobody."""
        self._listeners.setdefault(thread_id, []).append(wake)
        try:
            yield
        finally:
            self._listeners[thread_id].remove(wake)
            if not self._listeners[thread_id]:
                del self._listeners[thread_id]
                self._seen.pop(thread_id, None)

    def ring(self, thread_id: str) -> None:
        """Wake the listeners of a thread to which this process has written. The stores call it."""
        for wake in tuple(self._listeners.get(thread_id, ())):
            wake()

    async def poll(self) -> None:
        """Wake the listeners of threads that another process has written to since the last look."""
        for thread_id, mark in (await self.marks(tuple(self._listeners))).items():
            if thread_id in self._listeners and self._seen.get(thread_id) != mark:
                self._seen[thread_id] = mark
                self.ring(thread_id)

    async def run(self, every: float = EVERY) -> None:
        """Poll for ever; the daemon runs this in a task. A database that is away for a while is waited for."""
        while True:
            with suppress(HoldfastError):  # whoever wants to read says so loudly enough
                await self.poll()
            await asyncio.sleep(every)

    async def marks(self, thread_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return (last_seq, inbox) of each of these threads that is there."""
        ids = sorted(thread_ids)
        found: dict[str, tuple[int, int]] = {}
        for start in range(0, len(ids), _AT_ONCE):
            found |= await self._database.read(partial(_marks, ids[start : start + _AT_ONCE]))
        return found


def _marks(ids: Sequence[str], connection: sa.Connection) -> dict[str, tuple[int, int]]:
    query = sa.select(table.c.id, table.c.last_seq, table.c.inbox).where(table.c.id.in_(ids))
    return {row.id: (row.last_seq, row.inbox) for row in connection.execute(query)}
