"""Rows of sessions: every query, and every guard that keeps two daemons from both winning.

Times are unix seconds and always come from the caller. A guard stands in the WHERE of the UPDATE itself; a method
never reads, thinks and then writes.
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TypeVar

import sqlalchemy as sa

from holdfast.records.events import NewEvent
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.records.spec import SessionSpec
from holdfast.store.database.database import Database, Work
from holdfast.store.database.locks import INSERT, LEASE, hold
from holdfast.store.events import EventStore, append
from holdfast.store.sessions import snapshots, workspaces
from holdfast.store.sessions.rows import (
    SELECT,
    by_key,
    get,
    no_session,
    refuse_held,
    refuse_over,
    refuse_over_own,
    refuse_stale,
    row_of,
)
from holdfast.store.tables import LIVE
from holdfast.store.tables import sessions as table
from holdfast.store.tables import snapshots as snapshot_table

T = TypeVar("T")

_COLUMNS = tuple(column.name for column in fields(SessionRow))
_INSERT = sa.insert(table).returning(table)


class SessionStore:
    """The sessions table. All methods may run at the same time, in several processes.

    Besides what each method names: ``Unavailable`` if the database cannot be reached or is overloaded, ``DiskFull``
    if it cannot grow, ``BadInput`` for text or numbers that it cannot hold. A cancelled call has either happened
    as a whole or not at all.

    What takes ``tell`` adds events of these kinds to the log in the same transaction: no change without its event,
    and no event without its change, wherever the daemon dies.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.events = EventStore(database)

    async def insert(
        self,
        row: SessionRow,
        *,
        max_live: int | None,
        max_owned: int | None = None,
        tell: Sequence[str] = (),
        workspace: workspaces.WorkspaceWish | None = None,
    ) -> tuple[SessionRow, bool]:
        """Add a row, unless its owner's idempotency key is already there; returns the stored row and whether it is new.

        A known key gives the existing row, whatever became of it, and raises ``IdempotencyMismatch`` if its hash
        differs. Raises ``TooManySessions`` if ``max_live`` rows, or ``max_owned`` rows of this owner, are not destroyed
        yet; counting and inserting are atomic, so the limits hold for all daemons together. Raises ``Conflict``
        if the id is taken.

        The snapshot that it is made from must be ready (``SnapshotNotFound``). ``workspace`` is made if there is none
        of that name; it raises ``Conflict``, naming the session that holds it.
        """

        def work(connection: sa.Connection) -> tuple[SessionRow, bool]:
            hold(connection, INSERT)
            existing = by_key(connection, row)
            if existing is not None:
                return existing, False
            if max_owned is not None:
                refuse_over_own(connection, row.owner, max_owned)
            if max_live is not None:
                refuse_over(connection, max_live)
            if row.snapshot_id is not None:
                snapshots.refuse_unready(connection, row.snapshot_id)
            held = row.workspace_id if workspace is None else workspaces.take(connection, workspace, row)
            values = {name: getattr(row, name) for name in _COLUMNS} | {"workspace_id": held}
            stored = row_of(connection.execute(_INSERT, values).one())
            _tell(connection, tell, stored, row.updated_at)
            return stored, True

        return await self._write(work, tell)

    async def get(self, id: str) -> SessionRow:
        """Return the row; raises ``SessionNotFound``."""
        return await self._database.read(lambda connection: get(connection, id))

    async def owner(self, id: str) -> str:
        """For whom the session was made; raises ``SessionNotFound``."""
        query = sa.select(table.c.owner).where(table.c.id == id)
        found: str | None = await self._database.read(lambda connection: connection.scalar(query))
        if found is None:
            raise no_session(id)
        return found

    async def page(
        self, *, statuses: Collection[str] | None, limit: int, after: str | None, owner: str | None = None
    ) -> list[SessionRow]:
        """At most ``limit`` rows, newest first; ``after`` is the last id of the page before.

        None: all statuses; all owners.
        """
        query = SELECT.order_by(table.c.id.desc()).limit(limit)
        if statuses is not None:
            query = query.where(table.c.status.in_(statuses))
        if owner is not None:
            query = query.where(table.c.owner == owner)
        if after is not None:
            query = query.where(table.c.id < after)
        return await self._database.rows(query, SessionRow)

    async def by_status(self, statuses: Collection[str], *, node: str) -> list[SessionRow]:
        """Return every row of this node in one of ``statuses``, oldest first."""
        mine = SELECT.where(table.c.status.in_(statuses), table.c.node == node)
        return await self._database.rows(mine.order_by(table.c.id), SessionRow)

    async def expired(self, *, statuses: Collection[str], node: str, now: float, limit: int) -> list[SessionRow]:
        """This node's rows in one of ``statuses`` whose time is up, longest overdue first. Claim each before acting."""
        overdue = SELECT.where(table.c.status.in_(statuses), table.c.node == node, table.c.expires_at <= now)
        return await self._database.rows(overdue.order_by(table.c.expires_at).limit(limit), SessionRow)

    async def change(
        self,
        id: str,
        *,
        statuses: Collection[str],
        generation: int | None,
        now: float,
        values: SessionChange,
        tell: Sequence[str] = (),
        notes: Sequence[NewEvent] = (),
    ) -> SessionRow:
        """Set ``values`` if the row is in one of ``statuses`` and, unless None, still of this ``generation``.

        Returns the row as it is afterwards. Raises ``SessionNotFound`` if there is none and ``StaleRow`` if it
        has moved on; the message says to where. ``notes`` are events about others that come with it.
        """
        guards: list[sa.ColumnElement[bool]] = [table.c.status.in_(statuses)]
        if generation is not None:
            guards.append(table.c.generation == generation)

        def work(connection: sa.Connection) -> SessionRow:
            changed = _update(connection, id, guards, values, now, tell) or refuse_stale(connection, id)
            for note in notes:
                append(connection, note.kind, note.session_id, at=now, data=note.data, owner=note.owner)
            return changed

        return await self._write(work, [*tell, *(note.kind for note in notes)])

    async def claim_expired(
        self, id: str, *, statuses: Collection[str], now: float, values: SessionChange, tell: Sequence[str] = ()
    ) -> SessionRow | None:
        """Set ``values`` if the row is in one of ``statuses`` and its time is still up at ``now``.

        None if it no longer is, because the session was used, claimed or removed meanwhile.
        """
        guards = [table.c.status.in_(statuses), table.c.expires_at <= now]
        return await self._write(lambda connection: _update(connection, id, guards, values, now, tell), tell)

    async def start_over(self, id: str, *, snapshot_id: str, spec: SessionSpec, now: float) -> None:
        """For a restored database: the sandbox of a live row is gone, and is to be made anew from this snapshot."""
        values = {
            "status": Status.CREATING,
            "snapshot_id": snapshot_id,
            "spec": spec,
            "last_activity_at": now,
            "expires_at": now + table.c.ttl_seconds,
            "updated_at": now,
            **dict.fromkeys(("reason", "error", "handle", "paused_as", "paused_at", "lease_owner", "lease_expires_at")),
        }
        update = sa.update(table).where(table.c.id == id, table.c.status.in_(LIVE)).values(values)
        await self._database.write(lambda connection: connection.execute(update))

    async def acquire_lease(self, id: str, *, owner: str, now: float, ttl: float) -> SessionRow:
        """Take the lease until ``now + ttl`` if it is free, has run out, or is already ours.

        Each success adds one to ``generation``, which is the fencing token: what an earlier holder still tries
        with its own generation fails. Raises ``Conflict``, naming the holder, or ``SessionNotFound``.
        """
        free = sa.or_(
            table.c.lease_owner.is_(None),
            table.c.lease_owner == owner,
            table.c.lease_expires_at <= now,
        )
        taken = {
            "lease_owner": owner,
            "lease_expires_at": now + ttl,
            "generation": table.c.generation + 1,
            "updated_at": now,
        }
        update = sa.update(table).where(table.c.id == id, free).values(taken).returning(table)

        def work(connection: sa.Connection) -> SessionRow:
            hold(connection, LEASE, id)
            found = (connection.execute(update)).one_or_none()
            return row_of(found) if found is not None else refuse_held(connection, id)

        return await self._database.write(work)

    async def release_lease(self, id: str, *, owner: str, generation: int) -> None:
        """Give the lease back if it is still ours. If it is not, nothing happens: it was lost, which is no error."""
        update = _ours(id, owner, generation).values(lease_owner=None, lease_expires_at=None)
        await self._database.write(lambda connection: connection.execute(update))

    async def touch(self, rows: Sequence[tuple[str, float, float, str]]) -> None:
        """Note (id, last_activity_at, expires_at, cwd) for many sessions in one transaction.

        Neither time ever moves backwards, and an older activity does not bring back an older ``cwd``. Rows that
        are destroying, destroyed or gone stay as they are.
        """
        if not rows:
            return
        # In one order everywhere, so that two daemons with the same rows cannot deadlock.
        batch = [dict(zip(("b_id", "b_activity", "b_expires", "b_cwd"), row, strict=True)) for row in sorted(rows)]
        await self._database.write(lambda connection: connection.execute(_TOUCH, batch))

    async def move_times(self, *, node: str, seconds: float, now: float) -> None:
        """The clock of this node was set by so much, and it is ``now`` by it: what counts from a time of its live
        sessions counts on as it did. Times that were noted after that need no moving, so none gets later than it
        could be now. Only this moves times backwards."""
        moved = {
            "last_activity_at": _at_most(table.c.last_activity_at + seconds, now),
            "expires_at": _at_most(table.c.expires_at + seconds, now + table.c.ttl_seconds),
            "paused_at": _at_most(table.c.paused_at + seconds, now),
        }
        update = sa.update(table).where(table.c.node == node, table.c.status.in_(LIVE)).values(moved)
        await self._database.write(lambda connection: connection.execute(update))

    async def prune_destroyed(self, before: float) -> int:
        """Delete destroyed rows that last changed before ``before``; returns how many."""
        old = sa.delete(table).where(table.c.status == "destroyed", table.c.updated_at < before)
        return await self._database.write(lambda connection: connection.execute(old).rowcount)

    async def referenced_images(self, *, node: str) -> set[str]:
        """Return the images of this node's live sessions and of its snapshots: these may not be deleted."""
        of_sessions = sa.select(table.c.image).where(table.c.status.in_(LIVE), table.c.node == node)
        query = of_sessions.union(sa.select(snapshot_table.c.image).where(snapshot_table.c.node == node))
        return await self._database.read(lambda connection: set(connection.scalars(query)))

    async def _write(self, work: Work[T], tell: Sequence[str]) -> T:
        return await (self.events.write(work) if tell else self._database.write(work))


def _at_most(value: sa.ColumnElement[float], most: float | sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    return sa.case((value > most, most), else_=value)


def _later(column: sa.Column[float], value: sa.BindParameter[float]) -> sa.Case[float]:
    """Return the greater of the two: ``max`` and ``GREATEST`` in words that both databases know."""
    return sa.case((column < value, value), else_=column)


def _touch() -> sa.Update:
    activity = sa.bindparam("b_activity", type_=sa.Double)
    expires = sa.bindparam("b_expires", type_=sa.Double)
    cwd = sa.bindparam("b_cwd", type_=table.c.cwd.type)
    return (
        sa.update(table)
        .where(table.c.id == sa.bindparam("b_id"), table.c.status != "destroying", table.c.status != "destroyed")
        .values(
            last_activity_at=_later(table.c.last_activity_at, activity),
            expires_at=_later(table.c.expires_at, expires),
            cwd=sa.case((table.c.last_activity_at <= activity, cwd), else_=table.c.cwd),
        )
    )


_TOUCH = _touch()


def _ours(id: str, owner: str, generation: int) -> sa.Update:
    return sa.update(table).where(table.c.id == id, table.c.lease_owner == owner, table.c.generation == generation)


def _update(
    connection: sa.Connection,
    id: str,
    guards: Sequence[sa.ColumnElement[bool]],
    values: SessionChange,
    now: float,
    tell: Sequence[str],
) -> SessionRow | None:
    update = sa.update(table).where(table.c.id == id, *guards).values(**values, updated_at=now).returning(table)
    found = (connection.execute(update)).one_or_none()
    if found is None:
        return None
    row = row_of(found)
    _tell(connection, tell, row, now)
    return row


def _tell(connection: sa.Connection, kinds: Sequence[str], row: SessionRow, now: float) -> None:
    """The one place where a change of a row becomes events; what they say of the session is what everyone may see."""
    data = {
        "status": row.status,
        "reason": row.reason,
        "error": row.error,
        "image": row.image,
        "metadata": dict(row.metadata),
    }
    for kind in kinds:
        append(connection, kind, row.id, at=now, data=data, owner=row.owner)
