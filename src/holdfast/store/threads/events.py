"""The events of threads: numbered from 1 in each thread, without holes, in the order of the commits.

The number comes from the thread's own row, which stays locked until the transaction ends: who has read up to a number
has read everything before it, and threads do not wait for each other.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import sqlalchemy as sa

from holdfast.records.threads import DEFAULT_CHANNEL, Lease, ThreadEventPage, ThreadEventRow
from holdfast.store.database.database import Database
from holdfast.store.pages import PAGE_BYTES, stored_bytes, weighed
from holdfast.store.threads.guard import EVENT_BYTES, append, enter, enter_any, no_thread, write_and_wake
from holdfast.store.threads.tables import NOT_DELETED, UNENDED, threads, turns
from holdfast.store.threads.tables import thread_events as table
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.turn_events import TurnEvent

_AT_ONCE = 2000
_LEFT: Final = 90
"""Of the most that a thread may have, in percent: so much is left when some had to be forgotten."""


def _page() -> sa.Select[tuple[object, ...]]:
    """Return the query. It is made once: making it takes longer than asking it."""
    wanted = (table.c.thread_id == sa.bindparam("thread"), table.c.seq > sa.bindparam("after"))
    found = weighed(sa.select(table).where(*wanted).limit(sa.bindparam("most")), table.c.data, lambda c: [c.seq])
    this = (threads.c.id == sa.bindparam("thread"), sa.text(NOT_DELETED))
    counter = sa.select(threads.c.last_seq, threads.c.pruned_seq).where(*this).subquery()
    # One statement: an event that is counted in ``newest`` is on the page, if there is room for it.
    both = counter.outerjoin(found, found.c.before < sa.bindparam("bytes"))
    return sa.select(counter.c.last_seq, counter.c.pruned_seq, found).select_from(both).order_by(found.c.seq)


_PAGE = _page()


class ThreadEvents:
    """The log of each thread. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def record(self, lease: Lease, events: Sequence[TurnEvent], *, channel: str = DEFAULT_CHANNEL) -> int:
        """Add events that belong to no turn; returns the number of the newest."""

        def work(connection: sa.Connection) -> int:
            entered = enter(connection, lease, events=events)
            return append(connection, entered, events, channel=channel, numbered=True)

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def leave(self, thread_id: str, events: Sequence[TurnEvent], *, channel: str = DEFAULT_CHANNEL) -> int:
        """Add them without a lease: for what anybody may tell of a thread. Raises ``ThreadNotFound``."""

        def work(connection: sa.Connection) -> int:
            return append(connection, enter_any(connection, thread_id), events, channel=channel)

        return await write_and_wake(self._database, self._watch, thread_id, work)

    async def too_many(self, *, most_bytes: int, most_events: int, limit: int = 1000) -> list[str]:
        """Return the threads that have more of them."""
        over = sa.or_(threads.c.events_bytes > most_bytes, threads.c.last_seq - threads.c.pruned_seq > most_events)
        query = sa.select(threads.c.id).where(over, sa.text(NOT_DELETED)).limit(limit)
        return await self._database.read(lambda connection: list(connection.scalars(query)))

    async def prune(self, thread_id: str, *, most_bytes: int, most_events: int) -> int:
        """Forget the oldest events of a thread that has more, until it is well below; returns how many were forgotten.

        Those of a turn that has not ended stay, with all that came after. What was said stays in any case: the
        transcript is made of messages and turns. No lease is needed: nobody who works on the thread needs them.
        """
        forgotten = 0
        while True:
            work = partial(_prune, thread_id=thread_id, most_bytes=most_bytes, most_events=most_events)
            some = await self._database.write(work)
            forgotten += some
            if not some:
                return forgotten

    async def page(self, thread_id: str, *, after: int, limit: int) -> ThreadEventPage:
        """Return at most ``limit`` events with greater numbers than ``after``, in order. Raises ``ThreadNotFound``.

        Fewer where they are big: a page ends with the event that makes it ``PAGE_BYTES`` or more.
        """
        values = {"thread": thread_id, "after": after, "most": limit, "bytes": PAGE_BYTES}

        def work(connection: sa.Connection) -> ThreadEventPage:
            rows = connection.execute(_PAGE, values).all()
            if not rows:
                raise no_thread(thread_id)
            events = [_row(row) for row in rows if row.seq is not None]
            full = bool(events) and (len(events) == limit or len(events) < rows[0].whole)
            return ThreadEventPage(events, rows[0].last_seq, full, rows[0].pruned_seq)

        return await self._database.read(work)

    async def newest(self, thread_id: str) -> int:
        """Return the number of the newest event; 0 before the first. Raises ``ThreadNotFound``."""
        query = sa.select(threads.c.last_seq).where(threads.c.id == thread_id, sa.text(NOT_DELETED))
        found: int | None = await self._database.read(lambda connection: connection.scalar(query))
        if found is None:
            raise no_thread(thread_id)
        return found

    async def of_turn(self, turn_id: str, *, kinds: Collection[str] | None = None) -> list[ThreadEventRow]:
        """Return the events of one turn, in order: which questions are open, say."""
        its = (
            table.c.thread_id == turns.c.thread_id,
            table.c.seq.between(turns.c.first_seq, turns.c.last_seq),
            table.c.turn_id == turns.c.id,
        )
        query = sa.select(table).select_from(turns.join(table, sa.and_(*its))).where(turns.c.id == turn_id)
        if kinds is not None:
            query = query.where(table.c.kind.in_(kinds))
        ordered = query.order_by(table.c.seq)
        return await self._database.read(lambda connection: [_row(row) for row in connection.execute(ordered)])


def _prune(connection: sa.Connection, *, thread_id: str, most_bytes: int, most_events: int) -> int:
    """Forget a part of them: a transaction must not hold others up."""
    row = enter_any(connection, thread_id).row
    if row.events_bytes <= most_bytes and row.last_seq - row.pruned_seq <= most_events:
        return 0
    running = sa.select(sa.func.min(turns.c.first_seq)).where(turns.c.thread_id == row.id, sa.text(UNENDED))
    end = connection.scalar(running) or row.last_seq + 1
    its = (table.c.thread_id == row.id, table.c.seq < end)
    oldest = sa.select(table.c.seq, stored_bytes(table.c.data)).where(*its).order_by(table.c.seq).limit(_AT_ONCE)
    too_many = row.last_seq - row.pruned_seq - most_events * _LEFT // 100
    too_big, last, count = row.events_bytes - most_bytes * _LEFT // 100, row.pruned_seq, 0
    freed = 0
    for seq, size in connection.execute(oldest).all():
        if freed >= too_big and count >= too_many:
            break
        freed, last, count = freed + size + EVENT_BYTES, seq, count + 1
    if not count:
        return 0
    connection.execute(sa.delete(table).where(table.c.thread_id == row.id, table.c.seq <= last))
    fewer = {"pruned_seq": last, "events_bytes": threads.c.events_bytes - freed}
    connection.execute(sa.update(threads).where(threads.c.id == row.id).values(fewer))
    return count


def _row(row: sa.Row[tuple[object, ...]]) -> ThreadEventRow:
    found = row._mapping
    return ThreadEventRow(**{name: found[name] for name in ThreadEventRow.__dataclass_fields__})
