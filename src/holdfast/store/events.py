"""The log of what happened to sessions and threads: numbered, in the order of the commits, each event once.

A number comes from the one row of ``event_log``, which stays locked until the transaction ends. So numbers have no
holes, a smaller one is never seen after a greater one, and who has read up to a number has read everything before it.
A sequence of Postgres promises none of that: transactions take numbers in one order and commit in another.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import sqlalchemy as sa

from holdfast.records.events import EventPage, EventRow
from holdfast.store.database.database import Database, Work
from holdfast.store.tables import event_log as log
from holdfast.store.tables import session_events as table

T = TypeVar("T")


class EventStore:
    """The log of events. Raises what ``SessionStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.listeners: list[Callable[[], None]] = []
        """Called after this process may have added events; may be called in vain."""

    def announce(self) -> None:
        """Call the listeners. Whoever appends does, after the transaction."""
        for wake in self.listeners:
            wake()

    async def write(self, work: Work[T]) -> T:
        """Do work that appends events, and announce them; also after an error: a commit whose answer is lost, or whose
        caller is cancelled, may have added them."""
        try:
            return await self._database.write(work)
        finally:
            self.announce()

    async def record(
        self, kind: str, session_id: str, *, data: Mapping[str, object], now: float, owner: str | None = None
    ) -> int:
        """Add an event that no change of the row tells of; returns its number."""
        return await self.write(lambda connection: append(connection, kind, session_id, at=now, data=data, owner=owner))

    async def page(
        self,
        *,
        after: int | None,
        limit: int,
        session_id: str | None = None,
        kinds: Collection[str] | None = None,
        owner: str | None = None,
        thread_key: str | None = None,
    ) -> EventPage:
        """Read at most ``limit`` events with greater numbers than ``after``, in order; None: from the oldest there is.

        ``session_id``, ``thread_key``, ``kinds`` and ``owner`` narrow it down; None is all. Events and the state of the
        log are read by one statement, so nothing can be pruned in between unseen.
        """
        wanted = sa.select(table).order_by(table.c.seq).limit(limit)
        if after is not None:
            wanted = wanted.where(table.c.seq > after)
        if session_id is not None:
            wanted = wanted.where(table.c.session_id == session_id)
        if thread_key is not None:
            wanted = wanted.where(table.c.thread_key == thread_key)
        if kinds is not None:
            wanted = wanted.where(table.c.kind.in_(kinds))
        if owner is not None:
            wanted = wanted.where(table.c.owner == owner)
        found = wanted.subquery()
        query = sa.select(log.c.last_seq, log.c.pruned_through, found).select_from(log.outerjoin(found, sa.true()))
        ordered = query.order_by(found.c.seq)

        def work(connection: sa.Connection) -> EventPage:
            rows = connection.execute(ordered).all()
            newest, pruned = rows[0].last_seq, rows[0].pruned_through
            events = [_event(row) for row in rows if row.seq is not None]
            following = events[-1].seq if len(events) == limit else max(newest, after or 0)
            return EventPage(events, following, pruned + 1, newest)

        return await self._database.read(work)

    async def newest(self) -> int:
        """Return the number of the last event there ever was; 0 before the first."""
        return await self._database.read(lambda connection: connection.execute(sa.select(log.c.last_seq)).scalar_one())

    async def prune(self, before: float) -> int:
        """Forget events from the oldest on, up to the first that happened at or after ``before``; returns how many."""
        oldest = sa.select(table.c.at).order_by(table.c.seq).limit(1)
        first_kept = sa.select(table.c.seq).where(table.c.at >= before).order_by(table.c.seq).limit(1)

        def work(connection: sa.Connection) -> int:
            at = connection.scalar(oldest)
            if at is None or at >= before:
                return 0
            newest = connection.execute(sa.select(log.c.last_seq).with_for_update()).scalar_one()
            kept = connection.scalar(first_kept)
            through = newest if kept is None else kept - 1
            connection.execute(sa.update(log).values(pruned_through=through))
            return connection.execute(sa.delete(table).where(table.c.seq <= through)).rowcount

        return await self._database.write(work)


def append(
    connection: sa.Connection,
    kind: str,
    session_id: str,
    *,
    at: float,
    data: Mapping[str, object],
    owner: str | None,
    thread_id: str | None = None,
    thread_key: str | None = None,
) -> int:
    """Add an event inside a transaction, as late in it as possible: until its end, nobody else can add one."""
    counted = sa.update(log).values(last_seq=log.c.last_seq + 1).returning(log.c.last_seq)
    seq = connection.execute(counted).scalar_one()
    values = {"seq": seq, "kind": kind, "session_id": session_id, "at": at, "data": data, "owner": owner}
    connection.execute(sa.insert(table).values(values | {"thread_id": thread_id, "thread_key": thread_key}))
    return int(seq)


def _event(row: sa.Row[tuple[object, ...]]) -> EventRow:
    found = row._mapping
    return EventRow(**{name: found[name] for name in EventRow.__dataclass_fields__})
