"""Rows of threads and their channels: look-ups, and every change that its lease guards."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from holdfast.records.sessions import SessionRow
from holdfast.records.threads import (
    DEFAULT_CHANNEL,
    ChannelChange,
    ChannelRow,
    Lease,
    SleepState,
    Standing,
    ThreadChange,
    ThreadRow,
    with_fresh_after,
)
from holdfast.store.database.database import Database
from holdfast.store.database.locks import THREAD, hold
from holdfast.store.gateway import tunnels
from holdfast.store.pages import Page, read_page
from holdfast.store.tables import sessions
from holdfast.store.threads import news, removal
from holdfast.store.threads.guard import (
    append,
    change_channel,
    clock,
    enter,
    enter_any,
    no_thread,
    thread_row,
    write_and_wake,
)
from holdfast.store.threads.news import ThreadKind
from holdfast.store.threads.tables import NOT_DELETED, UNENDED, turns
from holdfast.store.threads.tables import thread_channels as channels
from holdfast.store.threads.tables import threads as table
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.preview_urls import split_token
from holdfast.vocabulary.thread_keys import platform_of
from holdfast.vocabulary.turn_events import TurnEvent

_FOUND = sa.select(table).where(sa.text(NOT_DELETED))
_STANDING = (
    sa.select(table, channels, sessions)
    .select_from(table)
    .outerjoin(channels, sa.and_(channels.c.thread_id == table.c.id, channels.c.channel == sa.bindparam("channel")))
    .outerjoin(sessions, sessions.c.id == table.c.session_id)
    .where(table.c.id == sa.bindparam("thread_id"), table.c.deleted_at.is_(None))
)
_WHOLE = (
    sa.select(table, channels)
    .select_from(table)
    .outerjoin(channels, channels.c.thread_id == table.c.id)
    .where(table.c.owner == sa.bindparam("owner"), table.c.key == sa.bindparam("key"), sa.text(NOT_DELETED))
    .order_by(channels.c.channel)
)
_AT_WORK = (
    sa.select(table, turns.c.id.label("turn_id"), turns.c.channel.label("turn_channel"))
    .select_from(table)
    .outerjoin(turns, sa.and_(turns.c.thread_id == table.c.id, sa.text(f"turns.{UNENDED}")))
    .where(table.c.session_id == sa.bindparam("session_id"), table.c.deleted_at.is_(None))
    .order_by(turns.c.first_seq)
)
_BEYOND = "\U0010ffff"
"""Sorts behind whatever else may follow a prefix."""


class ThreadStore:
    """The threads. All methods may run at the same time, in several processes.

    Besides what each method names: ``Unavailable`` if the database cannot be reached or is overloaded, ``DiskFull``
    if it cannot grow, ``BadInput`` for text or numbers that it cannot hold. A cancelled call has either happened as a
    whole or not at all. What takes a ``Lease`` raises ``StaleRow`` once that is lost and ``ThreadNotFound`` if the row
    is gone, and has changed nothing then. ``events`` are added in the same transaction as the change.
    """

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def get_or_create(
        self, *, id: str, owner: str, key: str, agent: str, settings: Mapping[str, object] | None = None
    ) -> tuple[ThreadRow, bool]:
        """Return the owner's thread with this key, and whether it is new. The other arguments are for a new one.

        Of many callers at once, one makes it and all get it. A deleted thread is not found: its key makes a new one.
        """
        mine = _FOUND.where(table.c.owner == owner, table.c.key == key)
        found = await self._database.row(mine, ThreadRow)
        if found is not None:
            return found, False

        def work(connection: sa.Connection) -> tuple[ThreadRow, bool]:
            hold(connection, THREAD, f"{owner}\0{key}")
            there = connection.execute(mine).one_or_none()
            if there is not None:
                return thread_row(there), False
            now = clock(connection)
            values = {
                "id": id,
                "owner": owner,
                "key": key,
                "platform": platform_of(key),
                "agent": agent,
                "settings": settings or {},
                "incarnation": 0,
                "sleep_state": SleepState.NONE,
                "resume_failures": 0,
                "generation": 0,
                "last_seq": 0,
                "inbox": 0,
                "last_activity_at": now,
                "created_at": now,
                "updated_at": now,
            }
            made = thread_row(connection.execute(sa.insert(table).values(values).returning(table)).one())
            news.tell(connection, made, ThreadKind.CREATED, made.created_at, {"agent": agent})
            return made, True

        return await self._database.write(work)

    async def get(self, id: str) -> ThreadRow:
        """Return the row; raises ``ThreadNotFound``, also if it is deleted."""
        found = await self._database.row(_FOUND.where(table.c.id == id), ThreadRow)
        if found is None:
            raise no_thread(id)
        return found

    async def by_key(self, owner: str, key: str) -> ThreadRow:
        """Return the row; raises ``ThreadNotFound``."""
        found = await self._database.row(_FOUND.where(table.c.owner == owner, table.c.key == key), ThreadRow)
        if found is None:
            raise no_thread(key)
        return found

    async def whole(self, owner: str, key: str) -> tuple[ThreadRow, list[ChannelRow]]:
        """Return the row with its channels, by name; raises ``ThreadNotFound``."""

        def work(connection: sa.Connection) -> tuple[ThreadRow, list[ChannelRow]]:
            found = connection.execute(_WHOLE, {"owner": owner, "key": key}).all()
            if not found:
                raise no_thread(key)
            parts = [_parts(one, table, channels) for one in found]
            return ThreadRow(**parts[0][0]), [ChannelRow(**channel) for _thread, channel in parts if channel]

        return await self._database.read(work)

    async def standing(self, id: str, channel: str) -> Standing:
        """Return all that resolving it needs to know, in one look; raises ``ThreadNotFound``."""

        def work(connection: sa.Connection) -> Standing:
            found = connection.execute(_STANDING, {"thread_id": id, "channel": channel}).one_or_none()
            if found is None:
                raise no_thread(id)
            thread, told, session = _parts(found, table, channels, sessions)
            return Standing(
                ThreadRow(**thread),
                ChannelRow(**told) if told else None,
                SessionRow(**session) if session else None,
            )

        return await self._database.read(work)

    async def page(
        self,
        *,
        limit: int,
        owner: str | None = None,
        key_prefix: str = "",
        after: tuple[float, str] | None = None,
    ) -> Page[ThreadRow]:
        """Return at most ``limit`` threads, last active first; ``after`` is (last_activity_at, id) of the one before.

        Reads only: a listing wakes nothing and counts as no activity.
        """
        query = _FOUND
        if owner is not None:
            query = query.where(table.c.owner == owner)
        if key_prefix:
            query = query.where(table.c.key >= key_prefix, table.c.key < key_prefix + _BEYOND)
        if after is not None:
            query = query.where(sa.tuple_(table.c.last_activity_at, table.c.id) < sa.tuple_(*after))
        return await self._database.read(
            lambda connection: read_page(
                connection, query, table.c.settings, _last_active_first, limit=limit, make=ThreadRow
            )
        )

    async def on_node(
        self, node: str, *, sleep_states: Collection[str] = tuple(SleepState), session_status: str | None = None
    ) -> list[ThreadRow]:
        """Return the threads whose session was made by this node: what its death leaves without a sandbox."""
        made_there = sa.select(sessions.c.id).where(sessions.c.node == node)
        if session_status is not None:
            made_there = made_there.where(sessions.c.status == session_status)
        mine = (table.c.session_id.in_(made_there), table.c.sleep_state.in_(sleep_states))
        return await self._database.rows(_FOUND.where(*mine).order_by(table.c.id), ThreadRow)

    async def at_work(self, session_id: str) -> tuple[ThreadRow, Mapping[str, str]] | None:
        """Return the thread that owns this session and, by channel, its turns that have not ended, oldest first."""

        def work(connection: sa.Connection) -> tuple[ThreadRow, Mapping[str, str]] | None:
            found = connection.execute(_AT_WORK, {"session_id": session_id}).all()
            if not found:
                return None
            (thread,) = _parts(found[0], table)
            return ThreadRow(**thread), {one.turn_channel: one.turn_id for one in found if one.turn_id is not None}

        return await self._database.read(work)

    async def channels(self, id: str) -> list[ChannelRow]:
        """Return the channels of a thread, by name; empty if there is no such thread."""
        query = sa.select(channels).where(channels.c.thread_id == id).order_by(channels.c.channel)
        return await self._database.rows(query, ChannelRow)

    async def channel(self, id: str, channel: str) -> ChannelRow | None:
        """Return one channel; None before its first message."""
        query = sa.select(channels).where(channels.c.thread_id == id, channels.c.channel == channel)
        return await self._database.row(query, ChannelRow)

    async def set_session(
        self,
        lease: Lease,
        session_id: str | None,
        *,
        events: Sequence[TurnEvent] = (),
        channel: str = DEFAULT_CHANNEL,
    ) -> ThreadRow:
        """Note which is the thread's sandbox now; None: it has none. A new one counts ``incarnation`` up.

        ``sleep_state`` becomes ``awake`` or ``none``. What a former sandbox was given is forgotten; the names of its
        ports are those of the next one.
        """
        given = None if session_id is None else sa.literal(session_id)
        lost = table.c.session_id.is_not(None) if given is None else table.c.session_id != given
        is_new = sa.false() if given is None else sa.func.coalesce(table.c.session_id, "") != given
        values: dict[str, object] = {
            "session_id": session_id,
            "incarnation": table.c.incarnation + sa.case((is_new, 1), else_=0),
            "sleep_state": SleepState.NONE if session_id is None else SleepState.AWAKE,
            "preview_url": None,
            "preview_token": None,
            "preview_expires_at": None,
            "workspace": None if session_id is None else sa.case((is_new, sa.null()), else_=table.c.workspace),
        }

        def work(connection: sa.Connection) -> ThreadRow:
            before = connection.scalar(sa.select(table.c.session_id).where(table.c.id == lease.thread_id))
            gone = sa.case((lost, clock(connection)), else_=table.c.destroyed_at)
            entered = enter(connection, lease, events=events, **values, destroyed_at=gone)
            append(connection, entered, events, channel=channel, numbered=True)
            return replace(entered.row, last_seq=tunnels.move(connection, entered, before))

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def change(
        self, lease: Lease, values: ThreadChange, *, events: Sequence[TurnEvent] = (), channel: str = DEFAULT_CHANNEL
    ) -> ThreadRow:
        """Set columns."""
        return await self._change(lease, values, events, channel)

    async def revise(
        self, lease: Lease, revised: Callable[[ThreadRow], ThreadChange], *, events: Sequence[TurnEvent] = ()
    ) -> ThreadRow:
        """Set columns to what ``revised`` makes of the row as it is now: nobody changes it in between.

        It may be called more than once. Another ``agent`` knows none of the former one's conversations: they are lost.
        """

        def work(connection: sa.Connection) -> ThreadRow:
            entered = enter(connection, lease, events=events)
            append(connection, entered, events, channel=DEFAULT_CHANNEL, numbered=True)
            values = revised(entered.row)
            if values.get("agent", entered.row.agent) != entered.row.agent:
                mine = sa.update(channels).where(channels.c.thread_id == lease.thread_id)
                connection.execute(mine.values(agent_session_id=None))
            update = sa.update(table).where(table.c.id == lease.thread_id).values(**values)
            return thread_row(connection.execute(update.returning(table)).one())

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def change_channel(
        self, lease: Lease, channel: str, values: ChannelChange, *, events: Sequence[TurnEvent] = ()
    ) -> ChannelRow:
        """Set columns of a channel (conversation, status, title), which is made if it is not there."""

        def work(connection: sa.Connection) -> ChannelRow:
            entered = enter(connection, lease, events=events)
            append(connection, entered, events, channel=channel, numbered=True)
            return change_channel(connection, entered, channel, values)

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def start_over(self, lease: Lease, channel: str, *, events: Sequence[TurnEvent] = ()) -> ThreadRow:
        """Forget the channel's conversation; its next one is told nothing of what came before ``events``.

        The boundary is kept in the thread's settings, as ``records.threads.fresh_after`` reads it.
        """

        def work(connection: sa.Connection) -> ThreadRow:
            entered = enter(connection, lease, events=events)
            append(connection, entered, events, channel=channel, numbered=True)
            change_channel(connection, entered, channel, {"agent_session_id": None})
            settings = with_fresh_after(entered.row, channel)
            update = sa.update(table).where(table.c.id == lease.thread_id).values(settings=settings)
            return thread_row(connection.execute(update.returning(table)).one())

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def note_error(self, lease: Lease, error: str, *, events: Sequence[TurnEvent] = ()) -> ThreadRow:
        """Note that the sandbox could not be had: in ``last_error``, and one more in ``resume_failures``."""
        values = {"last_error": error, "resume_failures": table.c.resume_failures + 1}

        def work(connection: sa.Connection) -> ThreadRow:
            entered = enter(connection, lease, events=events, **values)
            append(connection, entered, events, channel=DEFAULT_CHANNEL, numbered=True)
            told = {"error": error[:2000], "resume_failures": entered.row.resume_failures}
            news.tell(connection, entered.row, ThreadKind.ERROR, entered.now, told)
            return entered.row

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def clear_error(self, lease: Lease) -> ThreadRow:
        """Note that it works again: no error, no failures."""
        return await self._change(lease, {"last_error": None, "resume_failures": 0}, ())

    async def note_preview(
        self, id: str, session_id: str, url: str, token: str | None = None, expires_at: float | None = None
    ) -> None:
        """Note where its sandbox can be seen, while that is its sandbox. No lease needed: nothing depends on it.

        A token in the address (``?tkn=…``, as some providers have it) is taken out, and is the token if there is none.
        """
        url, found = split_token(url)
        this = (table.c.id == id, table.c.session_id == session_id, table.c.deleted_at.is_(None))
        values = {"preview_url": url, "preview_token": token or found, "preview_expires_at": expires_at}
        await self._database.write(lambda connection: connection.execute(sa.update(table).where(*this).values(values)))

    async def touch(self, id: str, channel: str | None = None) -> None:
        """Note that somebody uses the thread without writing to it, as in a terminal. No lease needed.

        ``channel``: and the agent of that channel.
        """

        def work(connection: sa.Connection) -> None:
            entered = enter_any(connection, id, last_activity_at=clock(connection))
            if channel is not None:
                this = (channels.c.thread_id == id, channels.c.channel == channel)
                connection.execute(sa.update(channels).where(*this).values(updated_at=entered.now))

        await self._database.write(work)

    async def touch_all(self, node: str) -> None:
        """Do the same for every thread whose session was made by this node."""
        made_there = sa.select(sessions.c.id).where(sessions.c.node == node)

        def work(connection: sa.Connection) -> None:
            used = {"last_activity_at": clock(connection)}
            connection.execute(sa.update(table).where(table.c.session_id.in_(made_there)).values(used))

        await self._database.write(work)

    async def delete(self, lease: Lease) -> ThreadRow:
        """Delete the thread: its key is free at once, what was queued is canceled, what runs is ended as canceled.

        The row, which nobody finds any more but ``deleted`` and the holder of the lease, stays until ``purge``; its
        session is the caller's to destroy, before or after, followed by ``set_session(lease, None)``.
        """
        work = partial(removal.delete, lease=lease)
        return await write_and_wake(self._database, self._watch, lease.thread_id, work)

    async def deleted(self, *, limit: int, node: str | None = None) -> list[ThreadRow]:
        """Return deleted threads with a session and a free lease: ``take`` each, destroy, ``set_session(lease, None)``.

        With ``node``, only those whose session is on that host, or not known any more: only it can destroy them.
        """
        return await self._database.read(partial(removal.doomed, limit=limit, node=node))

    async def purge(self, *, older_than: float) -> list[str]:
        """Forget threads that were deleted so many seconds ago and have no session; returns the paths of their files.

        Everything of theirs goes, a hundred threads in one call. The caller removes the files; one that is missing
        already is no error.
        """
        return await self._database.write(partial(removal.purge, older_than=older_than))

    async def _change(
        self, lease: Lease, values: Mapping[str, object], events: Sequence[TurnEvent], channel: str = DEFAULT_CHANNEL
    ) -> ThreadRow:
        def work(connection: sa.Connection) -> ThreadRow:
            entered = enter(connection, lease, events=events, **values)
            append(connection, entered, events, channel=channel, numbered=True)
            return entered.row

        return await write_and_wake(self._database, self._watch, lease.thread_id, work)


def _last_active_first(columns: sa.ColumnCollection[str, Any]) -> Sequence[sa.ColumnElement[Any]]:
    return [columns.last_activity_at.desc(), columns.id.desc()]


def _parts(found: sa.Row[Any], *tables: sa.Table) -> list[dict[str, Any]]:
    """Split a row of several tables, each by the names of its own columns; empty where there was nothing to join."""
    parts, start = [], 0
    for one in tables:
        values = found[start : start + len(one.c)]
        start += len(one.c)
        there = any(value is not None for value in values)
        parts.append(dict(zip(one.c.keys(), values, strict=True)) if there else {})
    return parts
