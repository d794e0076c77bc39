"""Rows of named tunnels. Each change is also an event, in the same transaction: of the session, and of its thread.

A thread's names outlive its sandboxes: the next one has them as well. While there is none, they are kept under the id
of the thread, as if that were a session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import sqlalchemy as sa

from holdfast.errors import TooManyTunnels, TunnelNotFound
from holdfast.records.gateway import TunnelRow
from holdfast.records.threads import DEFAULT_CHANNEL
from holdfast.store.database.database import Database, Work
from holdfast.store.database.locks import TUNNELS, hold
from holdfast.store.events import EventStore
from holdfast.store.events import append as append_event
from holdfast.store.gateway.tables import tunnels as table
from holdfast.store.tables import LIVE, sessions
from holdfast.store.threads.guard import Entered, append, enter_any
from holdfast.store.threads.tables import NOT_DELETED, threads
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.turn_events import Kind, TurnEvent

T = TypeVar("T")

KIND = Kind.TUNNELS.value
"""Of the event, which has all tunnels of the session as they are then."""


class TunnelStore:
    """Tunnels of sessions. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database, events: EventStore, watch: ThreadWatch) -> None:
        self._database = database
        self._events = events
        self._watch = watch

    async def put(self, row: TunnelRow, *, owner: str | None, most: int) -> TunnelRow:
        """Add a tunnel, or change the one of that name; return it. Raises ``TooManyTunnels``."""
        change = sa.update(table).where(table.c.session_id == row.session_id, table.c.name == row.name)

        def work(connection: sa.Connection) -> tuple[TunnelRow, str | None]:
            hold(connection, TUNNELS, row.session_id)
            before = _all(connection, row.session_id)
            same = next((one for one in before if one.name == row.name), None)
            if same is not None and (same.port, same.host) == (row.port, row.host):
                return same, None
            if same is None and len(before) >= most:
                raise TooManyTunnels(f"the session has {most} tunnels already; remove one first")
            thread = _enter_thread(connection, row.session_id)
            if same is not None:
                connection.execute(change.values(port=row.port, host=row.host))
            else:
                connection.execute(sa.insert(table).values(asdict(row)))
            told = _tell(connection, row.session_id, thread, owner=owner, now=row.created_at)
            return next(one for one in told if one.name == row.name), thread.row.id if thread else None

        return await self._write(work)

    async def remove(self, session_id: str, name: str, *, owner: str | None, now: float) -> None:
        """Raises ``TunnelNotFound``."""
        removed = sa.delete(table).where(table.c.session_id == session_id, table.c.name == name)

        def work(connection: sa.Connection) -> tuple[None, str | None]:
            hold(connection, TUNNELS, session_id)
            if all(one.name != name for one in _all(connection, session_id)):
                raise TunnelNotFound(f"the session has no tunnel {name}; GET …/tunnels shows those there are")
            thread = _enter_thread(connection, session_id)
            connection.execute(removed)
            _tell(connection, session_id, thread, owner=owner, now=now)
            return None, thread.row.id if thread else None

        await self._write(work)

    async def of_session(self, session_id: str) -> list[TunnelRow]:
        """Return the tunnels of a session, by name."""
        return await self._database.read(lambda connection: _all(connection, session_id))

    async def _write(self, work: Work[tuple[T, str | None]]) -> T:
        """Do the work, which also returns the thread whose followers it concerns."""
        try:
            found, thread_id = await self._database.write(work)
        finally:
            self._events.announce()
        if thread_id is not None:
            self._watch.ring(thread_id)
        return found


def move(connection: sa.Connection, entered: Entered, before: str | None) -> int:
    """Let the tunnels follow a thread whose sandbox has changed, from ``before`` to that of its row; tell of it.

    Returns the number of the thread's newest event.
    """
    after = entered.row.session_id
    newest = entered.row.last_seq
    if after == before:
        return newest
    place = after or entered.row.id
    left = [one for one in (before, entered.row.id) if one is not None and one != place]
    there = sa.select(table.c.name).where(table.c.session_id == place)
    its = table.c.session_id.in_(left)
    moved = connection.execute(
        sa.update(table).where(its, table.c.name.not_in(there)).values(session_id=place)
    ).rowcount
    connection.execute(sa.delete(table).where(its))
    if moved and after is not None:
        _tell(connection, after, entered, owner=entered.row.owner, now=entered.now)
        newest = connection.execute(sa.select(threads.c.last_seq).where(threads.c.id == entered.row.id)).scalar_one()
    return newest


def prune(connection: sa.Connection) -> None:
    """Remove those of sessions that are gone, unless they wait for a thread's next sandbox."""
    alive = sa.select(sessions.c.id).where(sessions.c.status.in_(LIVE))
    waits = sa.exists().where(
        sa.or_(threads.c.id == table.c.session_id, threads.c.session_id == table.c.session_id), sa.text(NOT_DELETED)
    )
    connection.execute(sa.delete(table).where(table.c.session_id.not_in(alive), ~waits))


def _all(connection: sa.Connection, session_id: str) -> list[TunnelRow]:
    query = sa.select(table).where(table.c.session_id == session_id).order_by(table.c.name)
    return [TunnelRow(**found._mapping) for found in connection.execute(query)]


def _enter_thread(connection: sa.Connection, session_id: str) -> Entered | None:
    """Lock the thread whose sandbox it is, before anything is written: that is the order of all who write to both."""
    mine = sa.select(threads.c.id).where(threads.c.session_id == session_id, sa.text(NOT_DELETED)).limit(1)
    thread_id = connection.scalar(mine)
    return None if thread_id is None else enter_any(connection, thread_id)


def _tell(
    connection: sa.Connection, session_id: str, thread: Entered | None, *, owner: str | None, now: float
) -> Sequence[TunnelRow]:
    """Write the events, and return what they tell."""
    rows = _all(connection, session_id)
    data: Mapping[str, object] = {"tunnels": [{"name": one.name, "port": one.port, "host": one.host} for one in rows]}
    if thread is not None:
        told = TurnEvent(Kind.TUNNELS, {"session_id": session_id, **data})
        append(connection, thread, [told], channel=DEFAULT_CHANNEL)
    append_event(
        connection,
        KIND,
        session_id,
        at=now,
        data=data,
        owner=owner,
        thread_id=None if thread is None else thread.row.id,
        thread_key=None if thread is None else thread.row.key,
    )
    return rows
