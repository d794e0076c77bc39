"""Leases on threads: who may work on one, who takes over from the dead, and who is idle enough to be put to sleep.

A lease lasts ``ttl`` seconds from now by the one clock (see ``records.threads``); no daemon's own clock comes into it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

from holdfast.errors import Conflict
from holdfast.records.threads import Lease, ThreadRow
from holdfast.store.database.database import Database
from holdfast.store.threads.guard import (
    at_home,
    clock,
    enter,
    has_work,
    lease_free,
    lock,
    no_thread,
    read_clock,
    thread_row,
)
from holdfast.store.threads.tables import NOT_DELETED, OPEN, QUEUED, UNENDED, messages, thread_requests, turns
from holdfast.store.threads.tables import threads as table
from holdfast.store.threads.watch import ThreadWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Threads that have a session, are in one of these sleep states, and have had nothing to do for so long.

    A thread with a queued message, an open request or a turn that has not ended is never idle.
    """

    sleep_states: Collection[str]
    idle_for: float


class ThreadLeases:
    """Takes and gives back leases. Raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def now(self) -> float:
        """Return what time it is, by the one clock."""
        return await self._database.read(read_clock)

    async def take(self, id: str, *, owner: str, ttl: float) -> ThreadRow:
        """Take the lease if it is free, has run out, or is already ours. ``row.lease`` is what later writes need.

        Each success adds one to the generation: whoever had it before is refused from then on, also if that was an
        earlier life of the same owner. Raises ``Conflict``, naming the holder, or ``ThreadNotFound``.

        One guarded UPDATE is enough here, without an advisory lock around it: the condition looks at this one row
        only, so whoever comes second waits for the row's own lock and then has the condition tested on the row as the
        first has left it (on Postgres as well, which reads it anew). Where there is no row yet, or a condition looks
        at other tables, that does not hold, and ``get_or_create`` and ``claim_idle`` lock first.
        """

        def work(connection: sa.Connection) -> ThreadRow:
            now = clock(connection)
            free = sa.or_(table.c.lease_owner == owner, lease_free(now))
            found = connection.execute(_taken(id, owner, now + ttl, now).where(free)).one_or_none()
            return thread_row(found) if found is not None else _refuse_held(connection, id)

        return await self._database.write(work)

    async def renew(self, lease: Lease, *, ttl: float) -> ThreadRow:
        """Keep it for ``ttl`` seconds from now. Raises ``StaleRow`` if it is lost."""
        return await self._database.write(
            lambda connection: enter(connection, lease, lease_expires_at=clock(connection) + ttl).row
        )

    async def release(self, lease: Lease, *, if_done: bool = True) -> bool:
        """Give the lease back; return whether it is free (or lost) now.

        With ``if_done``, a thread that has a queued message, an open request or a turn that has not ended is not let
        go: False, and the holder goes on with that. Storing a message and this wait for each other, so none falls
        in between: either the holder sees it, or who stored it sees a free lease.
        """
        update = sa.update(table).where(*_ours(lease)).values(lease_owner=None, lease_expires_at=None)
        still = sa.select(table.c.id).where(*_ours(lease))

        def work(connection: sa.Connection) -> bool:
            lock(connection, lease.thread_id)
            done = ~has_work() if if_done else sa.true()
            if connection.execute(update.where(done)).rowcount == 1:
                return True
            return connection.scalar(still) is None

        return await self._database.write(work)

    async def release_all(self, owner: str) -> list[str]:
        """Give back every lease of this owner, at its orderly end: others take over at once. Returns the threads."""
        mine = sa.update(table).where(table.c.lease_owner == owner)
        free = mine.values(lease_owner=None, lease_expires_at=None).returning(table.c.id)
        return await self._database.write(lambda connection: sorted(connection.scalars(free)))

    async def abandoned(self, *, limit: int, nodes: Collection[str] | None = None) -> list[ThreadRow]:
        """Return threads with work to do and nobody doing it, longest untouched first. ``take`` each before acting.

        ``nodes``: only those whose sandbox is on one of these hosts, or that have none.
        """

        def work(connection: sa.Connection) -> list[ThreadRow]:
            unled = (sa.text(NOT_DELETED), lease_free(clock(connection)), table.c.id.in_(_with_work()))
            home = sa.true() if nodes is None else at_home(nodes)
            query = sa.select(table).where(*unled, home).order_by(table.c.updated_at).limit(limit)
            return [thread_row(found) for found in connection.execute(query)]

        return await self._database.read(work)

    async def idle(
        self, rule: Idle, *, limit: int, nodes: Collection[str] | None = None, after: tuple[float, str] | None = None
    ) -> list[ThreadRow]:
        """Return threads for which the rule holds and whose lease is free, longest idle first. Claim each first.

        ``nodes`` as with ``abandoned``; ``after``: last activity and id of the last one of the page before.
        """

        def work(connection: sa.Connection) -> list[ThreadRow]:
            query = sa.select(table).where(*_holds(rule, clock(connection)))
            if nodes is not None:
                query = query.where(at_home(nodes))
            if after is not None:
                at, id = after
                same = sa.and_(table.c.last_activity_at == at, table.c.id > id)
                query = query.where(sa.or_(table.c.last_activity_at > at, same))
            ordered = query.order_by(table.c.last_activity_at, table.c.id).limit(limit)
            return [thread_row(found) for found in connection.execute(ordered)]

        return await self._database.read(work)

    async def claim_idle(self, id: str, rule: Idle, *, owner: str, ttl: float) -> ThreadRow | None:
        """Take the lease if the rule still holds in that very moment; None if not: it was used or claimed meanwhile."""

        def work(connection: sa.Connection) -> ThreadRow | None:
            lock(connection, id)
            now = clock(connection)
            found = connection.execute(_taken(id, owner, now + ttl, now).where(*_holds(rule, now))).one_or_none()
            return None if found is None else thread_row(found)

        return await self._database.write(work)


def _ours(lease: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.id == lease.thread_id, table.c.lease_owner == lease.owner, table.c.generation == lease.generation


def _taken(
    id: str, owner: str, until: sa.ColumnElement[float], now: sa.ColumnElement[float]
) -> ReturningUpdate[tuple[object, ...]]:
    values = {
        "lease_owner": owner,
        "lease_expires_at": until,
        "generation": table.c.generation + 1,
        "updated_at": now,
    }
    return sa.update(table).where(table.c.id == id).values(values).returning(table)


def _with_work() -> sa.CompoundSelect[tuple[str]]:
    """Say the same as ``has_work``, from the other side: few threads have any, and indexes know which."""
    return sa.union(
        sa.select(messages.c.thread_id).where(sa.text(QUEUED)),
        sa.select(turns.c.thread_id).where(sa.text(UNENDED)),
        sa.select(thread_requests.c.thread_id).where(sa.text(OPEN)),
    )


def _holds(rule: Idle, now: sa.ColumnElement[float]) -> list[sa.ColumnElement[bool]]:
    return [
        table.c.deleted_at.is_(None),
        table.c.session_id.is_not(None),
        table.c.sleep_state.in_(rule.sleep_states),
        table.c.last_activity_at <= now - rule.idle_for,
        lease_free(now),
        ~has_work(),
    ]


def _refuse_held(connection: sa.Connection, id: str) -> NoReturn:
    query = sa.select(table.c.lease_owner, table.c.lease_expires_at).where(table.c.id == id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_thread(id)
    until = datetime.fromtimestamp(found.lease_expires_at or 0.0, UTC).isoformat(timespec="milliseconds")
    raise Conflict(f"thread {id} is leased by {found.lease_owner} until {until}; try again then")
