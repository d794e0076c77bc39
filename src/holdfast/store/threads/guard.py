"""What every write to a thread has in common: the clock, the lease's guard, and the numbers of its events.

A write begins by updating the thread's row, which stays locked until the transaction ends. So all that is written to
one thread happens one after the other, and what is read after that is how things are, in every table.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

import sqlalchemy as sa

from holdfast.errors import StaleRow, ThreadNotFound
from holdfast.records.threads import ChannelRow, Lease, ThreadRow
from holdfast.store.database.database import Database, Work
from holdfast.store.tables import sessions
from holdfast.store.threads import news
from holdfast.store.threads.tables import OPEN, QUEUED, UNENDED, messages, thread_requests, turns
from holdfast.store.threads.tables import thread_channels as channels
from holdfast.store.threads.tables import thread_events as log
from holdfast.store.threads.tables import threads as table
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check

T = TypeVar("T")

EVENT_BYTES: Final = 100
"""What an event takes in the database besides what it tells, roughly."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A thread whose row this transaction holds, and what time it is."""

    row: ThreadRow
    now: float


def clock(connection: sa.Connection) -> sa.ColumnElement[float]:
    """Return the one clock: the server's where daemons on several machines meet, else this machine's."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return sa.literal(time.time(), sa.Double)


def read_clock(connection: sa.Connection) -> float:
    """Ask the one clock what time it is."""
    return connection.execute(sa.select(clock(connection))).scalar_one()


def thread_row(found: sa.Row[tuple[object, ...]]) -> ThreadRow:
    return ThreadRow(**found._mapping)


def no_thread(id: str) -> ThreadNotFound:
    """Return what is also said of a thread that is somebody else's: the two must look the same."""
    return ThreadNotFound(f"there is no thread {id}")


async def write_and_wake(database: Database, watch: ThreadWatch, thread_id: str, work: Work[T]) -> T:
    """Do the work and wake the listeners; also after an error, for a commit whose answer is lost has happened."""
    try:
        return await database.write(work)
    finally:
        watch.ring(thread_id)


def enter(connection: sa.Connection, lease: Lease, *, events: Sequence[TurnEvent] = (), **values: object) -> Entered:
    """Lock the thread's row if the lease holds, and take numbers for these events. Raises ``StaleRow``."""
    guards = (table.c.lease_owner == lease.owner, table.c.generation == lease.generation)
    entered = _update(connection, lease.thread_id, guards, {**_counted(events), **_seen(connection, events), **values})
    return entered or refuse_stale(connection, lease)


def _counted(events: Sequence[TurnEvent], sign: int = 1) -> dict[str, object]:
    """Return how the numbers in the thread's row change by them."""
    if not events:
        return {}
    size = sum(len(json.dumps(dict(event.data))) + EVENT_BYTES for event in events)
    return {"last_seq": table.c.last_seq + sign * len(events), "events_bytes": table.c.events_bytes + sign * size}


def _seen(connection: sa.Connection, events: Sequence[TurnEvent]) -> dict[str, object]:
    """Return what they say of its sandbox: that it answers, and whether more was needed for that than to make it."""
    hows = {event.data.get("how") for event in events if event.kind is Kind.RESOLVED}
    if not hows:
        return {}
    now = clock(connection)
    return {"healthy_at": now} if hows == {"created"} else {"healthy_at": now, "resumed_at": now}


def enter_any(connection: sa.Connection, thread_id: str, **values: object) -> Entered:
    """Lock the row without a lease, to bring something for its holder. Raises ``ThreadNotFound``."""
    entered = _update(connection, thread_id, (table.c.deleted_at.is_(None),), values)
    if entered is None:
        raise no_thread(thread_id)
    return entered


def lock(connection: sa.Connection, thread_id: str) -> None:
    """Lock the row and leave it as it is. For a predicate over several tables: Postgres evaluates those as they were
    when the statement began, so the statement must begin after the wait for the lock."""
    connection.execute(sa.select(table.c.id).where(table.c.id == thread_id).with_for_update())


def append(
    connection: sa.Connection,
    entered: Entered,
    events: Sequence[TurnEvent],
    *,
    channel: str,
    turn_id: str | None = None,
    numbered: bool = False,
) -> int:
    """Add events to a thread that was entered; returns the newest number. ``numbered``: ``enter`` took the numbers."""
    newest = entered.row.last_seq
    if not numbered and events:
        counted = sa.update(table).where(table.c.id == entered.row.id).values(_counted(events))
        update = counted.returning(table.c.last_seq)
        newest = connection.execute(update).scalar_one()
    if events:
        rows = [
            {
                "thread_id": entered.row.id,
                "seq": seq,
                "turn_id": turn_id,
                "channel": channel,
                "kind": event.kind.value,
                "data": check(event).data,
                "at": entered.now,
            }
            for seq, event in enumerate(events, newest - len(events) + 1)
        ]
        connection.execute(sa.insert(log), rows)
        news.tell_of(connection, entered.row, events, at=entered.now, channel=channel, turn_id=turn_id)
    return newest


def give_back(connection: sa.Connection, entered: Entered, events: Sequence[TurnEvent]) -> None:
    """Give back the numbers that ``enter`` took; the row is held, so nobody has taken any since."""
    if events:
        connection.execute(sa.update(table).where(table.c.id == entered.row.id).values(_counted(events, -1)))


def ensure_channel(connection: sa.Connection, entered: Entered, channel: str) -> None:
    """Make the channel if it is not there; the thread's row is held, so nobody else does."""
    there = sa.exists().where(channels.c.thread_id == entered.row.id, channels.c.channel == channel)
    names = ["thread_id", "channel", "agent_status", "created_at", "updated_at"]
    now = sa.literal(entered.now, sa.Double)
    values = (sa.literal(entered.row.id, sa.Text), sa.literal(channel, sa.Text), sa.literal("idle", sa.Text), now, now)
    connection.execute(sa.insert(channels).from_select(names, sa.select(*values).where(~there)))


def change_channel(
    connection: sa.Connection, entered: Entered, channel: str, values: Mapping[str, object]
) -> ChannelRow:
    ensure_channel(connection, entered, channel)
    this = (channels.c.thread_id == entered.row.id, channels.c.channel == channel)
    update = sa.update(channels).where(*this).values(**values, updated_at=entered.now).returning(channels)
    return ChannelRow(**connection.execute(update).one()._mapping)


def has_work() -> sa.ColumnElement[bool]:
    """Return whether there is a queued message, a turn that has not ended, or an open request."""
    return sa.or_(
        sa.exists().where(messages.c.thread_id == table.c.id, sa.text(f"messages.{QUEUED}")),
        sa.exists().where(turns.c.thread_id == table.c.id, sa.text(f"turns.{UNENDED}")),
        sa.exists().where(thread_requests.c.thread_id == table.c.id, sa.text(f"thread_requests.{OPEN}")),
    )


def at_home(nodes: Collection[str]) -> sa.ColumnElement[bool]:
    """Return whether its sandbox is on one of these hosts, or it has none."""
    return ~sa.exists().where(sessions.c.id == table.c.session_id, sessions.c.node.not_in(nodes))


def lease_free(now: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.lease_owner.is_(None), table.c.lease_expires_at <= now)


def refuse_stale(connection: sa.Connection, lease: Lease) -> NoReturn:
    query = sa.select(table.c.lease_owner, table.c.generation).where(table.c.id == lease.thread_id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_thread(lease.thread_id)
    raise StaleRow(
        f"the lease of {lease.owner} on thread {lease.thread_id} (generation {lease.generation}) is lost: it is "
        f"leased by {found.lease_owner or 'nobody'}, generation {found.generation}; stop working on it"
    )


def _update(
    connection: sa.Connection,
    thread_id: str,
    guards: Sequence[sa.ColumnElement[bool]],
    values: Mapping[str, object],
) -> Entered | None:
    """Update the row. ``updated_at`` is what time it is: the statement tells it without another round trip."""
    update = sa.update(table).where(table.c.id == thread_id, *guards)
    found = connection.execute(update.values(**values, updated_at=clock(connection)).returning(table)).one_or_none()
    if found is None:
        return None
    row = thread_row(found)
    return Entered(row, row.updated_at)
