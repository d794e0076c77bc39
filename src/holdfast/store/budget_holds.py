"""Money that calls under way may still cost: held in the database, so that all daemons on it keep one budget."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from holdfast.records.usage import Run
from holdfast.store.database.database import Database
from holdfast.store.database.locks import BUDGET, hold
from holdfast.store.threads.guard import clock
from holdfast.store.usage import day_of, totals
from holdfast.store.usage_tables import budget_holds as table
from holdfast.store.usage_tables import usage_totals


@dataclass(frozen=True, slots=True)
class Purse:
    """A budget in US dollars (None: there is none), with what was spent of it and what is held of it."""

    limit: float | None
    spent: float = 0.0
    held: float = 0.0

    @property
    def is_spent(self) -> bool:
        return self.limit is not None and self.spent >= self.limit

    def has_room(self, usd: float) -> bool:
        """Whether a call may start. One may even if it could cost more than is left, when no other runs: nobody knows
        what it will cost."""
        if self.limit is None or (not self.held and not self.is_spent):
            return True
        return self.spent + self.held < self.limit and self.spent + self.held + usd <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to hold money of a thread's budget, and of its owner's for the month of ``now``."""

    id: str
    thread_id: str
    owner: str
    usd: float
    thread_limit: float | None
    owner_limit: float | None
    now: float


class BudgetHolds:
    """All holds. It raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, asked: Asked, *, run: Run, ttl: float) -> tuple[Purse, Purse]:
        """Hold it for ``ttl`` seconds by the one clock, if there is room in both purses: the thread's, the owner's.
        Returns them as they were before.

        All who ask for money of the same thread or owner come one after the other. Who bills a call does not wait for
        them: it moves its money from held to spent in one transaction, and one statement sees it in one of the two.
        """

        def work(connection: sa.Connection) -> tuple[Purse, Purse]:
            if asked.thread_limit is not None:
                hold(connection, BUDGET, f"thread:{asked.thread_id}")
            if asked.owner_limit is not None:
                hold(connection, BUDGET, f"owner:{asked.owner}")
            now = clock(connection)
            thread, owner = _purses(connection, asked, run, now)
            if asked.usd > 0 and thread.has_room(asked.usd) and owner.has_room(asked.usd):
                connection.execute(_new(asked, run, now + ttl))
            return thread, owner

        return await self._database.write(work)

    async def release(self, ids: Collection[str]) -> None:
        """Give these back. Holds that are gone already are left alone."""
        gone = sa.delete(table).where(table.c.id.in_(ids))
        await self._database.write(lambda connection: connection.execute(gone))

    async def renew(self, *, run: Run, ttl: float) -> None:
        """Keep the holds of this run for ``ttl`` seconds from now; give back what earlier runs of its node held, and
        what has run out."""

        def work(connection: sa.Connection) -> None:
            now = clock(connection)
            connection.execute(sa.update(table).where(table.c.run == run.id).values(until=now + ttl))
            over = sa.or_(table.c.node == run.node, table.c.until <= now)
            connection.execute(sa.delete(table).where(table.c.run != run.id, over))

        await self._database.write(work)


def _purses(connection: sa.Connection, asked: Asked, run: Run, now: sa.ColumnElement[float]) -> tuple[Purse, Purse]:
    """Read both purses in one statement: a second statement would see another moment."""
    keys = totals(asked.thread_id, asked.owner, day_of(asked.now))
    counts = sa.or_(table.c.run == run.id, table.c.until > now)
    held = (_held(counts, table.c.thread_id == asked.thread_id), _held(counts, table.c.owner == asked.owner))
    found = connection.execute(sa.select(*(_spent(*key) for key in keys), *held)).one()
    thread_spent, owner_spent, thread_held, owner_held = (float(usd or 0.0) for usd in found)
    return (
        Purse(asked.thread_limit, thread_spent, thread_held),
        Purse(asked.owner_limit, owner_spent, owner_held),
    )


def _spent(whose: str, month: str) -> sa.ScalarSelect[float]:
    mine = sa.and_(usage_totals.c.whose == whose, usage_totals.c.month == month)
    return sa.select(usage_totals.c.cost_usd).where(mine).scalar_subquery()


def _held(counts: sa.ColumnElement[bool], whose: sa.ColumnElement[bool]) -> sa.ScalarSelect[float]:
    return sa.select(sa.func.sum(table.c.usd)).where(counts, whose).scalar_subquery()


def _new(asked: Asked, run: Run, until: sa.ColumnElement[float]) -> sa.Insert:
    return sa.insert(table).values(
        id=asked.id,
        thread_id=asked.thread_id,
        owner=asked.owner,
        usd=asked.usd,
        node=run.node,
        run=run.id,
        until=until,
    )
