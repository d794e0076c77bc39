"""The hosts that run a daemon on this database, and since when each has been silent."""

import sqlalchemy as sa

from holdfast.records.threads import NodeRow
from holdfast.store.database.database import Database
from holdfast.store.database.locks import NODE, hold
from holdfast.store.threads.guard import clock
from holdfast.store.threads.tables import nodes as table


class NodeStore:
    """The nodes. It raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def heartbeat(self, id: str, *, started: bool = False) -> NodeRow:
        """Note that this node is alive now. ``started``: its daemon has just begun."""

        def work(connection: sa.Connection) -> NodeRow:
            hold(connection, NODE, id)
            now = clock(connection)
            values = {"heartbeat_at": now} | ({"started_at": now} if started else {})
            update = sa.update(table).where(table.c.id == id).values(values).returning(table)
            found = connection.execute(update).one_or_none()
            if found is None:
                new = sa.insert(table).values(id=id, started_at=now, heartbeat_at=now).returning(table)
                found = connection.execute(new).one()
            return NodeRow(**found._mapping)

        return await self._database.write(work)

    async def all(self) -> list[NodeRow]:
        """Return every node there ever was, by id."""
        return await self._database.rows(sa.select(table).order_by(table.c.id), NodeRow)

    async def dead(self, *, silent_for: float) -> list[NodeRow]:
        """Return the nodes that have not been heard of for more than so many seconds."""

        def work(connection: sa.Connection) -> list[NodeRow]:
            query = sa.select(table).where(_silent(connection, silent_for)).order_by(table.c.id)
            return [NodeRow(**found._mapping) for found in connection.execute(query)]

        return await self._database.read(work)

    async def forget(self, id: str, *, silent_for: float) -> bool:
        """Forget a node if it is still silent; returns whether it was."""

        def work(connection: sa.Connection) -> bool:
            gone = sa.delete(table).where(table.c.id == id, _silent(connection, silent_for))
            return connection.execute(gone).rowcount == 1

        return await self._database.write(work)


def _silent(connection: sa.Connection, seconds: float) -> sa.ColumnElement[bool]:
    return table.c.heartbeat_at < clock(connection) - seconds
