"""How a thread goes: deleted at once for everybody who looks, then cleared away piece by piece."""

import sqlalchemy as sa

from holdfast.records.threads import Lease, MessageStatus, ThreadRow
from holdfast.store.threads import news
from holdfast.store.threads.guard import at_home, clock, enter, lease_free, thread_row
from holdfast.store.threads.news import ThreadKind
from holdfast.store.threads.tables import (
    OPEN,
    QUEUED,
    UNENDED,
    messages,
    thread_channels,
    thread_events,
    thread_files,
    thread_requests,
    turns,
)
from holdfast.store.threads.tables import threads as table
from holdfast.store.threads.turn_end import end_turn
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

_AT_ONCE = 100
"""Threads that one call of ``purge`` forgets at most: a transaction must not hold others up."""
_DELETED = {"error": {"code": "thread_not_found", "message": "the thread was deleted"}}


def delete(connection: sa.Connection, lease: Lease) -> ThreadRow:
    """Do what ``ThreadStore.delete`` says."""
    before = connection.scalar(sa.select(table.c.deleted_at).where(table.c.id == lease.thread_id))
    first = sa.func.coalesce(table.c.deleted_at, clock(connection))
    entered = enter(connection, lease, deleted_at=first, inbox=table.c.inbox + 1)
    running = sa.select(turns.c.id).where(turns.c.thread_id == lease.thread_id, sa.text(UNENDED))
    for turn_id in connection.scalars(running).all():
        canceled = {"message_id": turn_id, "reason": StopReason.CANCELED.value}
        end_turn(connection, entered, turn_id, TurnEvent(Kind.FINALIZE, canceled))
    queued = sa.update(messages).where(messages.c.thread_id == lease.thread_id, sa.text(QUEUED))
    connection.execute(queued.values(status=MessageStatus.CANCELED, updated_at=entered.now))
    asked = sa.update(thread_requests).where(thread_requests.c.thread_id == lease.thread_id, sa.text(OPEN))
    connection.execute(asked.values(done_at=entered.now, result=_DELETED))
    if before is None:
        news.tell(connection, entered.row, ThreadKind.DELETED, entered.now, {})
    return entered.row


def doomed(connection: sa.Connection, limit: int, node: str | None = None) -> list[ThreadRow]:
    """Return what ``ThreadStore.deleted`` says."""
    query = (
        sa.select(table)
        .where(table.c.deleted_at.is_not(None), table.c.session_id.is_not(None), lease_free(clock(connection)))
        .order_by(table.c.deleted_at)
        .limit(limit)
    )
    mine = query if node is None else query.where(at_home([node]))
    return [thread_row(found) for found in connection.execute(mine)]


def purge(connection: sa.Connection, older_than: float) -> list[str]:
    """Do what ``ThreadStore.purge`` says."""
    now = clock(connection)
    old = (table.c.deleted_at <= now - older_than, table.c.session_id.is_(None), lease_free(now))
    some = sa.select(table.c.id).where(*old).order_by(table.c.id).limit(_AT_ONCE)
    ids = connection.scalars(some.with_for_update(skip_locked=True)).all()
    if not ids:
        return []
    paths = connection.scalars(sa.select(thread_files.c.path).where(thread_files.c.thread_id.in_(ids))).all()
    for part in (thread_channels, messages, turns, thread_events, thread_requests, thread_files):
        connection.execute(sa.delete(part).where(part.c.thread_id.in_(ids)))
    connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
    return list(paths)
