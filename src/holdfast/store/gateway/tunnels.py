"""Rows of named tunnels. Each change is also an event, in the same transaction."""

from dataclasses import asdict
from typing import TypeVar

import sqlalchemy as sa

from holdfast.errors import TooManyTunnels, TunnelNotFound
from holdfast.records.gateway import TunnelRow
from holdfast.store.database.database import Database, Work
from holdfast.store.events import EventStore, append
from holdfast.store.gateway.tables import tunnels as table
from holdfast.store.threads.tables import threads

T = TypeVar("T")

KIND = "tunnels"
"""Of the event, which has all tunnels of the session as they are then."""


class TunnelStore:
    """Tunnels of sessions. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database, events: EventStore) -> None:
        self._database = database
        self._events = events

    async def put(self, row: TunnelRow, *, owner: str | None, most: int) -> TunnelRow:
        """Add a tunnel, or change the one of that name; return it. Raises ``TooManyTunnels``."""
        change = sa.update(table).where(table.c.session_id == row.session_id, table.c.name == row.name)

        def work(connection: sa.Connection) -> TunnelRow:
            before = _all(connection, row.session_id)
            same = next((one for one in before if one.name == row.name), None)
            if same is not None and (same.port, same.host) == (row.port, row.host):
                return same
            if same is not None:
                connection.execute(change.values(port=row.port, host=row.host))
            elif len(before) >= most:
                raise TooManyTunnels(f"the session has {most} tunnels already; remove one first")
            else:
                connection.execute(sa.insert(table).values(asdict(row)))
            _tell(connection, row.session_id, owner=owner, now=row.created_at)
            return next(one for one in _all(connection, row.session_id) if one.name == row.name)

        return await self._write(work)

    async def remove(self, session_id: str, name: str, *, owner: str | None, now: float) -> None:
        """Raises ``TunnelNotFound``."""
        removed = sa.delete(table).where(table.c.session_id == session_id, table.c.name == name)

        def work(connection: sa.Connection) -> None:
            if not connection.execute(removed).rowcount:
                raise TunnelNotFound(f"the session has no tunnel {name}; GET …/tunnels shows those there are")
            _tell(connection, session_id, owner=owner, now=now)

        await self._write(work)

    async def of_session(self, session_id: str) -> list[TunnelRow]:
        """Return the tunnels of a session, by name."""
        return await self._database.read(lambda connection: _all(connection, session_id))

    async def find(self, session_id: str, name: str) -> TunnelRow | None:
        return next((one for one in await self.of_session(session_id) if one.name == name), None)

    async def _write(self, work: Work[T]) -> T:
        try:
            return await self._database.write(work)
        finally:
            self._events.announce()


def _all(connection: sa.Connection, session_id: str) -> list[TunnelRow]:
    query = sa.select(table).where(table.c.session_id == session_id).order_by(table.c.name)
    return [TunnelRow(**found._mapping) for found in connection.execute(query)]


def _tell(connection: sa.Connection, session_id: str, *, owner: str | None, now: float) -> None:
    """Write the event, for followers of the session and of the thread whose sandbox it is."""
    query = sa.select(threads.c.id, threads.c.key).where(threads.c.session_id == session_id).limit(1)
    thread = connection.execute(query).one_or_none()
    told = [{"name": one.name, "port": one.port, "host": one.host} for one in _all(connection, session_id)]
    append(
        connection,
        KIND,
        session_id,
        at=now,
        data={"tunnels": told},
        owner=owner,
        thread_id=thread.id if thread is not None else None,
        thread_key=thread.key if thread is not None else None,
    )
