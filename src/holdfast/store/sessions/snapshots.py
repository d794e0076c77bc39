"""Rows of snapshots. A row comes before its files and goes after them, so that no file is ever without one for long.

writing ──finish──► ready ──begin_removal──► deleting ──remove──► no row
   └─────────────begin_removal────────────────►
"""

from collections.abc import Sequence

import sqlalchemy as sa

from holdfast.errors import Conflict, IdempotencyMismatch, SnapshotNotFound, TooManySnapshots
from holdfast.records.columns import columns
from holdfast.records.copies import SnapshotRow
from holdfast.records.events import NewEvent
from holdfast.store.database.database import Database
from holdfast.store.database.locks import INSERT, hold
from holdfast.store.events import EventStore, append
from holdfast.store.tables import sessions
from holdfast.store.tables import snapshots as table


class SnapshotStore:
    """The snapshots table. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database, events: EventStore) -> None:
        self._database = database
        self._events = events

    async def insert(self, row: SnapshotRow, *, max_owned: int | None) -> tuple[SnapshotRow, bool]:
        """Add a row, unless its owner's idempotency key is already there; returns the stored row and whether it is new.

        Raises ``IdempotencyMismatch``, ``Conflict`` if the owner has one of that name, ``TooManySnapshots``.
        """

        def work(connection: sa.Connection) -> tuple[SnapshotRow, bool]:
            hold(connection, INSERT)
            existing = _by_key(connection, row)
            if existing is not None:
                return existing, False
            _refuse_taken(connection, row)
            if max_owned is not None:
                _refuse_over(connection, row.owner, max_owned)
            connection.execute(sa.insert(table).values(columns(row)))
            return row, True

        return await self._database.write(work)

    async def get(self, reference: str, *, owner: str, everybodys: bool = False) -> SnapshotRow:
        """By the name that ``owner`` gave it, or by id; with ``everybodys``, by the id of anybody's.

        Raises ``SnapshotNotFound``.
        """
        mine = table.c.owner == owner
        by_id = table.c.id == reference if everybodys else sa.and_(table.c.id == reference, mine)
        query = sa.select(table).where(sa.or_(by_id, sa.and_(table.c.name == reference, mine)))
        found = await self._database.row(query, SnapshotRow)
        if found is None:
            raise no_snapshot(reference)
        return found

    async def all(self, *, owner: str | None = None, node: str | None = None) -> list[SnapshotRow]:
        """Newest first; None is everybody's, on every node."""
        query = sa.select(table).order_by(table.c.id.desc())
        if owner is not None:
            query = query.where(table.c.owner == owner)
        if node is not None:
            query = query.where(table.c.node == node)
        return await self._database.rows(query, SnapshotRow)

    async def finish(
        self, id: str, *, kind: str, size_bytes: int, now: float, notes: Sequence[NewEvent]
    ) -> SnapshotRow:
        """Its files are there: from now on it can be used. Raises ``SnapshotNotFound`` if it was given up meanwhile."""
        values = {"status": "ready", "kind": kind, "size_bytes": size_bytes}
        update = sa.update(table).where(table.c.id == id, table.c.status == "writing").values(values).returning(table)

        def work(connection: sa.Connection) -> SnapshotRow:
            found = connection.execute(update).one_or_none()
            if found is None:
                raise no_snapshot(id)
            for note in notes:
                append(connection, note.kind, note.session_id, at=now, data=note.data, owner=note.owner)
            return SnapshotRow(**found._mapping)

        return await self._events.write(work)

    async def begin_removal(self, id: str) -> None:
        """From now on nobody can use it. Raises ``Conflict``, naming the session that is being made from it."""
        user = sa.select(sessions.c.id).where(sessions.c.snapshot_id == id, sessions.c.status == "creating").limit(1)
        update = sa.update(table).where(table.c.id == id).values(status="deleting")

        def work(connection: sa.Connection) -> None:
            hold(connection, INSERT)
            busy = connection.scalar(user)
            if busy is not None:
                raise Conflict(f"snapshot {id} is in use: session {busy} is being made from it; try again then")
            if connection.execute(update).rowcount == 0:
                raise no_snapshot(id)

        await self._database.write(work)

    async def remove(self, id: str) -> None:
        """The row, once its files are gone. Safe to repeat."""
        delete = sa.delete(table).where(table.c.id == id, table.c.status == "deleting")
        await self._database.write(lambda connection: connection.execute(delete))


def no_snapshot(reference: str) -> SnapshotNotFound:
    """Also said of one that is somebody else's: the two must look the same."""
    return SnapshotNotFound(
        f"there is no snapshot {reference}; `holdfast snapshot ls` (GET /v1/snapshots) lists those there are"
    )


def refuse_unready(connection: sa.Connection, id: str) -> None:
    """Inside the transaction of an insert that is made from it, which holds the lock."""
    status = connection.scalar(sa.select(table.c.status).where(table.c.id == id))
    if status != "ready":
        raise no_snapshot(id)


def _by_key(connection: sa.Connection, row: SnapshotRow) -> SnapshotRow | None:
    if row.idempotency_key is None:
        return None
    query = sa.select(table).where(table.c.owner == row.owner, table.c.idempotency_key == row.idempotency_key)
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    existing = SnapshotRow(**found._mapping)
    if existing.idempotency_hash != row.idempotency_hash:
        raise IdempotencyMismatch(
            f"the idempotency key was already used for snapshot {existing.id} with another request; use a new key"
        )
    return existing


def _refuse_taken(connection: sa.Connection, row: SnapshotRow) -> None:
    query = sa.select(table.c.status).where(table.c.owner == row.owner, table.c.name == row.name)
    status = connection.scalar(query)
    if status is not None:
        how = {"ready": "already", "writing": "being written", "deleting": "being removed"}[status]
        raise Conflict(f"there is a snapshot {row.name} {how}; take another name, or remove that one first")


def _refuse_over(connection: sa.Connection, owner: str, most: int) -> None:
    count = connection.execute(sa.select(sa.func.count()).select_from(table).where(table.c.owner == owner)).scalar_one()
    if count >= most:
        raise TooManySnapshots(f"{owner} has {count} snapshots and the limit (max_snapshots) is {most}; remove one")
