"""The events of threads: numbered from 1 in each thread, without holes, in the order of the commits.

The number comes from the thread's own row, which stays locked until the transaction ends: who has read up to a number
has read everything before it, and threads do not wait for each other.
"""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from holdfast.protocol.turn_events import TurnEvent
from holdfast.store.database import Database
from holdfast.store.thread_guard import append, enter, enter_any, no_thread, written
from holdfast.store.thread_rows import DEFAULT_CHANNEL, Lease, ThreadEventPage, ThreadEventRow
from holdfast.store.thread_tables import NOT_DELETED, threads, turns
from holdfast.store.thread_tables import thread_events as table
from holdfast.store.thread_watch import ThreadWatch


class ThreadEvents:
    """The log of each thread. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def record(self, lease: Lease, events: Sequence[TurnEvent], *, channel: str = DEFAULT_CHANNEL) -> int:
        """Add events that belong to no turn; returns the number of the newest."""

        def work(connection: sa.Connection) -> int:
            entered = enter(connection, lease, events=len(events))
            return append(connection, entered, events, channel=channel, numbered=True)

        return await written(self._database, self._watch, lease.thread_id, work)

    async def leave(self, thread_id: str, events: Sequence[TurnEvent], *, channel: str = DEFAULT_CHANNEL) -> int:
        """The same, by who holds no lease: for what anybody may tell of a thread. Raises ``ThreadNotFound``."""

        def work(connection: sa.Connection) -> int:
            return append(connection, enter_any(connection, thread_id), events, channel=channel)

        return await written(self._database, self._watch, thread_id, work)

    async def page(self, thread_id: str, *, after: int, limit: int, channel: str | None = None) -> ThreadEventPage:
        """At most ``limit`` events with greater numbers than ``after``, in order. Raises ``ThreadNotFound``."""
        wanted = sa.select(table).where(table.c.thread_id == thread_id, table.c.seq > after)
        if channel is not None:
            wanted = wanted.where(table.c.channel == channel)
        found = wanted.order_by(table.c.seq).limit(limit).subquery()
        counter = sa.select(threads.c.last_seq).where(threads.c.id == thread_id, sa.text(NOT_DELETED)).subquery()
        # One statement: an event that is counted in ``newest`` is on the page, if there is room for it.
        both = sa.select(counter.c.last_seq, found).select_from(counter.outerjoin(found, sa.true()))

        def work(connection: sa.Connection) -> ThreadEventPage:
            rows = connection.execute(both.order_by(found.c.seq)).all()
            if not rows:
                raise no_thread(thread_id)
            return ThreadEventPage([_row(row) for row in rows if row.seq is not None], rows[0].last_seq, limit)

        return await self._database.read(work)

    async def newest(self, thread_id: str) -> int:
        """The number of the newest event; 0 before the first. Raises ``ThreadNotFound``."""
        query = sa.select(threads.c.last_seq).where(threads.c.id == thread_id, sa.text(NOT_DELETED))
        found: int | None = await self._database.read(lambda connection: connection.scalar(query))
        if found is None:
            raise no_thread(thread_id)
        return found

    async def of_turn(self, turn_id: str, *, kinds: Collection[str] | None = None) -> list[ThreadEventRow]:
        """The events of one turn, in order: which questions are open, say."""
        its = (
            table.c.thread_id == turns.c.thread_id,
            table.c.seq.between(turns.c.first_seq, turns.c.last_seq),
            table.c.turn_id == turns.c.id,
        )
        query = sa.select(table).select_from(turns.join(table, sa.and_(*its))).where(turns.c.id == turn_id)
        if kinds is not None:
            query = query.where(table.c.kind.in_(kinds))
        ordered = query.order_by(table.c.seq)

        def work(connection: sa.Connection) -> list[ThreadEventRow]:
            return [_row(row) for row in connection.execute(ordered)]

        return await self._database.read(work)


def _row(row: sa.Row[tuple[object, ...]]) -> ThreadEventRow:
    found = row._mapping
    return ThreadEventRow(**{name: found[name] for name in ThreadEventRow.__dataclass_fields__})
