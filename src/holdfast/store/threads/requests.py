"""What a client asks of a running turn, on its way to the daemon that holds the lease: abort, an answer, revert.

Any daemon stores a request; the holder, woken by ``ThreadWatch``, does it and writes the result; the asker, woken
too, reads that.
"""

from collections.abc import Mapping

import sqlalchemy as sa

from holdfast.errors import NotFound
from holdfast.records.threads import Lease, RequestRow, ThreadRow
from holdfast.store.database.database import Database
from holdfast.store.threads.guard import clock, enter, enter_any, write_and_wake
from holdfast.store.threads.tables import OPEN, threads
from holdfast.store.threads.tables import thread_requests as table
from holdfast.store.threads.watch import ThreadWatch


class ThreadRequests:
    """Requests to the holder of a lease. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def put(
        self, thread_id: str, *, id: str, kind: str, data: Mapping[str, object]
    ) -> tuple[RequestRow, ThreadRow]:
        """Store a request, once per id; return it and the thread, whose holder, if any, sees it before letting go."""

        def work(connection: sa.Connection) -> tuple[RequestRow, ThreadRow]:
            entered = enter_any(connection, thread_id, inbox=threads.c.inbox + 1)
            there = connection.execute(sa.select(table).where(table.c.id == id)).one_or_none()
            if there is not None:
                return RequestRow(**there._mapping), entered.row
            values = {"id": id, "thread_id": thread_id, "kind": kind, "data": data, "at": entered.now}
            added = connection.execute(sa.insert(table).values(values).returning(table)).one()
            return RequestRow(**added._mapping), entered.row

        return await write_and_wake(self._database, self._watch, thread_id, work)

    async def open(self, thread_id: str) -> list[RequestRow]:
        """Return those not done yet, oldest first."""
        query = sa.select(table).where(table.c.thread_id == thread_id, sa.text(OPEN)).order_by(table.c.at, table.c.id)
        return await self._database.rows(query, RequestRow)

    async def get(self, id: str) -> RequestRow:
        """Return one request; raises ``NotFound``."""
        return await self._database.read(lambda connection: _get(connection, id))

    async def finish(self, lease: Lease, id: str, result: Mapping[str, object]) -> RequestRow:
        """Note that it is done, or cannot be: ``result`` says which. The first result stays. Wakes listeners."""

        def work(connection: sa.Connection) -> RequestRow:
            entered = enter(connection, lease, inbox=threads.c.inbox + 1)
            this = (table.c.id == id, table.c.thread_id == lease.thread_id, sa.text(OPEN))
            update = sa.update(table).where(*this).values(done_at=entered.now, result=result).returning(table)
            found = connection.execute(update).one_or_none()
            return _get(connection, id) if found is None else RequestRow(**found._mapping)

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def forget(self, *, older_than: float) -> int:
        """Forget those done so many seconds ago, whose askers have read the result or are gone; return how many."""

        def work(connection: sa.Connection) -> int:
            old = table.c.done_at <= clock(connection) - older_than
            return connection.execute(sa.delete(table).where(old)).rowcount

        return await self._database.write(work)


def _get(connection: sa.Connection, id: str) -> RequestRow:
    found = connection.execute(sa.select(table).where(table.c.id == id)).one_or_none()
    if found is None:
        raise NotFound(f"there is no request {id}")
    return RequestRow(**found._mapping)
