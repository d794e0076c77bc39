"""Rows of workspaces. Who holds one is not written here: it is the live session whose row names it.

So a workspace is given back by the very change that makes its session ``destroyed``, and cannot be held by nobody.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from holdfast.errors import Conflict, TooManyWorkspaces, WorkspaceNotFound
from holdfast.records.columns import columns
from holdfast.records.copies import WorkspaceRow
from holdfast.records.sessions import SessionRow
from holdfast.store.database.database import Database
from holdfast.store.database.locks import INSERT, hold
from holdfast.store.tables import LIVE, sessions
from holdfast.store.tables import workspaces as table


@dataclass(frozen=True, slots=True)
class WorkspaceWish:
    """What a session that is being inserted wants. ``id`` and ``disk_mb`` are for one that does not exist yet."""

    name: str
    id: str
    disk_mb: int
    max_owned: int | None


_HOLDER = (
    sa.select(sessions.c.id)
    .where(sessions.c.workspace_id == table.c.id, sessions.c.status.in_(LIVE))
    .limit(1)
    .scalar_subquery()
)
_SELECT = sa.select(table, _HOLDER.label("session_id"))


class WorkspaceStore:
    """The workspaces table. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, *, owner: str | None = None, node: str | None = None) -> list[WorkspaceRow]:
        """By name; None is everybody's, on every node."""
        query = _SELECT.order_by(table.c.name, table.c.id)
        if owner is not None:
            query = query.where(table.c.owner == owner)
        if node is not None:
            query = query.where(table.c.node == node)
        return await self._database.rows(query, WorkspaceRow)

    async def get(self, reference: str, *, owner: str, everybodys: bool = False) -> WorkspaceRow:
        """By the name that ``owner`` gave it, or by id; with ``everybodys``, by the id of anybody's.

        Raises ``WorkspaceNotFound``.
        """
        mine = table.c.owner == owner
        by_id = table.c.id == reference if everybodys else sa.and_(table.c.id == reference, mine)
        query = _SELECT.where(sa.or_(by_id, sa.and_(table.c.name == reference, mine)))
        found = await self._database.row(query, WorkspaceRow)
        if found is None:
            raise no_workspace(reference)
        return found

    async def insert(self, row: WorkspaceRow) -> None:
        """One whose files are there already. Raises ``Conflict`` if the id is known, or the name is taken."""
        taken = sa.or_(table.c.id == row.id, sa.and_(table.c.owner == row.owner, table.c.name == row.name))

        def work(connection: sa.Connection) -> None:
            hold(connection, INSERT)
            if connection.scalar(sa.select(table.c.id).where(taken)) is not None:
                raise Conflict(f"{row.owner} has a workspace {row.name} already; remove that one first")
            values = {name: value for name, value in columns(row).items() if name != "session_id"}
            connection.execute(sa.insert(table).values(values))

        await self._database.write(work)

    async def begin_removal(self, id: str) -> None:
        """From now on no session can have it. Raises ``Conflict``, naming the session that holds it."""

        def work(connection: sa.Connection) -> None:
            hold(connection, INSERT)
            found = connection.execute(_SELECT.where(table.c.id == id)).one_or_none()
            if found is None:
                raise no_workspace(id)
            _refuse_held(WorkspaceRow(**found._mapping))
            connection.execute(sa.update(table).where(table.c.id == id).values(status="deleting"))

        await self._database.write(work)

    async def remove(self, id: str) -> None:
        """The row, once its files are gone. Safe to repeat."""
        delete = sa.delete(table).where(table.c.id == id, table.c.status == "deleting")
        await self._database.write(lambda connection: connection.execute(delete))


def no_workspace(reference: str) -> WorkspaceNotFound:
    """Also said of one that is somebody else's: the two must look the same."""
    return WorkspaceNotFound(
        f"there is no workspace {reference}; `holdfast workspace ls` (GET /v1/workspaces) lists those there are"
    )


def take(connection: sa.Connection, wish: WorkspaceWish, row: SessionRow) -> str:
    """Return the id of the workspace for this row, inside the transaction of its insert, which holds the lock."""
    query = _SELECT.where(table.c.owner == row.owner, table.c.name == wish.name)
    found = connection.execute(query).one_or_none()
    if found is None:
        return _make(connection, wish, row)
    there = WorkspaceRow(**found._mapping)
    _refuse_held(there)
    if there.status == "deleting":
        raise Conflict(f"workspace {there.name} is being removed; try again then, or take another name")
    if there.node != row.node:
        raise Conflict(f"workspace {there.name} is on another machine, {there.node}; make the session there")
    connection.execute(sa.update(table).where(table.c.id == there.id).values(last_used_at=row.created_at))
    return there.id


def _make(connection: sa.Connection, wish: WorkspaceWish, row: SessionRow) -> str:
    mine = sa.select(sa.func.count()).select_from(table).where(table.c.owner == row.owner)
    count = connection.execute(mine).scalar_one()
    if wish.max_owned is not None and count >= wish.max_owned:
        raise TooManyWorkspaces(
            f"{row.owner} has {count} workspaces and the limit (max_workspaces) is {wish.max_owned}; remove one"
        )
    made = {
        "id": wish.id,
        "name": wish.name,
        "owner": row.owner,
        "status": "ready",
        "node": row.node,
        "disk_mb": wish.disk_mb,
        "created_at": row.created_at,
        "last_used_at": row.created_at,
    }
    connection.execute(sa.insert(table).values(made))
    return wish.id


def _refuse_held(there: WorkspaceRow) -> None:
    if there.session_id is not None:
        raise Conflict(
            f"workspace {there.name} is held by session {there.session_id}; destroy that one, or take another name"
        )
