"""How far each webhook has been told, and who is telling it: one cursor per webhook, leased while it moves.

A cursor moves only under its lease, so of several daemons on one database one delivers at a time, in order. Failures
and the time of the next try stand in the row too: a daemon that starts again, or takes over, goes on from there.
"""

import sqlalchemy as sa

from holdfast.errors import StaleRow
from holdfast.records.events import WebhookCursor
from holdfast.store.database.database import Database
from holdfast.store.tables import event_log
from holdfast.store.tables import webhook_cursors as table
from holdfast.store.threads.guard import read_clock

LONGEST_WAIT_SECONDS = 3600.0
"""Nobody waits longer than this between two tries."""


class WebhookCursors:
    """The cursors of all webhooks. Raises what ``SessionStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> float:
        """Return the time by the database's clock, which cursors go by: the clocks of hosts differ."""
        return await self._database.read(read_clock)

    async def ensure(self, id: str, *, now: float) -> WebhookCursor:
        """Return the cursor of a webhook; a new one begins with the next event, not with the past."""
        begin = sa.select(
            sa.literal(id),
            event_log.c.last_seq,
            sa.literal(0),
            sa.literal(0.0),
            sa.literal(0.0),
            sa.literal(now),
        ).where(~sa.exists().where(table.c.id == id))
        columns = ["id", "seq", "failures", "next_try_at", "lease_expires_at", "updated_at"]

        def work(connection: sa.Connection) -> WebhookCursor:
            # Whoever begins a cursor holds the log's row, so two daemons do not begin the same one.
            connection.execute(sa.select(event_log.c.id).with_for_update())
            connection.execute(sa.insert(table).from_select(columns, begin))
            update = sa.update(table).where(table.c.id == id).values(updated_at=now).returning(table)
            return WebhookCursor(**connection.execute(update).one()._mapping)

        return await self._database.write(work)

    async def look(self, id: str) -> tuple[WebhookCursor, int]:
        """Return the cursor, and the number of the newest event. Raises ``StaleRow`` if there is no such cursor."""
        query = (
            sa.select(table, event_log.c.last_seq).where(table.c.id == id).select_from(table.join(event_log, sa.true()))
        )

        def work(connection: sa.Connection) -> tuple[WebhookCursor, int]:
            found = connection.execute(query).one_or_none()
            if found is None:
                raise StaleRow(f"the cursor of webhook {id} is gone")
            values = dict(found._mapping)
            newest = values.pop("last_seq")
            return WebhookCursor(**values), newest

        return await self._database.read(work)

    async def claim(self, id: str, *, owner: str, now: float, ttl: float) -> WebhookCursor | None:
        """Lease the cursor until ``now + ttl`` if nobody else has it and its next try is due; None if not.

        Times that are further ahead than anybody sets them were set by a clock that has been set back since: they
        hold nobody up.
        """
        over = sa.or_(table.c.lease_expires_at <= now, table.c.lease_expires_at > now + 2 * ttl)
        free = sa.or_(table.c.lease_owner.is_(None), table.c.lease_owner == owner, over)
        due = sa.or_(table.c.next_try_at <= now, table.c.next_try_at > now + LONGEST_WAIT_SECONDS)
        update = (
            sa.update(table)
            .where(table.c.id == id, free, due)
            .values(lease_owner=owner, lease_expires_at=now + ttl, updated_at=now)
            .returning(table)
        )

        def work(connection: sa.Connection) -> WebhookCursor | None:
            found = connection.execute(update).one_or_none()
            return None if found is None else WebhookCursor(**found._mapping)

        return await self._database.write(work)

    async def advance(self, id: str, *, owner: str, seq: int, now: float, ttl: float) -> None:
        """Note that all up to ``seq`` is delivered; keeps the lease. Raises ``StaleRow`` if the lease is lost."""
        await self._move(id, owner, seq=seq, failures=0, next_try_at=0.0, lease_expires_at=now + ttl, updated_at=now)

    async def postpone(self, id: str, *, owner: str, seq: int, failures: int, next_try_at: float, now: float) -> None:
        """Note a failed try: the next is at ``next_try_at``, with what is after ``seq``. Gives the lease back."""
        await self._move(
            id, owner, seq=seq, failures=failures, next_try_at=next_try_at, lease_owner=None, updated_at=now
        )

    async def release(self, id: str, *, owner: str) -> None:
        """Give the lease back if it is still ours."""
        mine = sa.update(table).where(table.c.id == id, table.c.lease_owner == owner).values(lease_owner=None)
        await self._database.write(lambda connection: connection.execute(mine))

    async def _move(self, id: str, owner: str, **values: object) -> None:
        update = sa.update(table).where(table.c.id == id, table.c.lease_owner == owner).values(**values)

        def work(connection: sa.Connection) -> None:
            if connection.execute(update).rowcount == 0:
                raise StaleRow(f"the lease on webhook {id} is lost: another daemon has taken over")

        await self._database.write(work)
