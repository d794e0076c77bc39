"""Messages of threads: stored once each, in the order they came, until a turn takes them up."""

import hashlib
import json
from collections.abc import Collection
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from holdfast.errors import FileMissing, IdempotencyMismatch, NotFound, WrongState
from holdfast.records.threads import FileKind, MessageRow, MessageStatus, NewMessage, Put, ThreadRow
from holdfast.store.database.database import Database
from holdfast.store.pages import Page, read_page
from holdfast.store.threads.guard import Entered, append, clock, ensure_channel, enter_any, thread_row, write_and_wake
from holdfast.store.threads.tables import NOT_DELETED, QUEUED, thread_files, threads
from holdfast.store.threads.tables import messages as table
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.turn_events import Kind, TurnEvent


class MessageStore:
    """The messages. Needs no lease: every daemon takes messages. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def put(self, thread_id: str, message: NewMessage) -> Put:
        """Store a message, once: an id that is there already gives the stored one, whatever became of it.

        Raises ``IdempotencyMismatch`` if that one says something else, ``ThreadNotFound``, and ``FileMissing`` if an
        attachment is no upload of this thread. Makes the channel, counts as activity, wakes listeners.
        """
        hash = _hash(message)
        stored = await self._stored(thread_id, message.id)
        if stored is not None:
            return Put(_same(stored[0], hash), False, stored[1])

        def work(connection: sa.Connection) -> Put:
            now = clock(connection)
            entered = enter_any(connection, thread_id, inbox=threads.c.inbox + 1, last_activity_at=now)
            there = connection.execute(_one(thread_id, message.id)).one_or_none()
            if there is not None:
                return Put(_same(_row(there), hash), False, entered.row)
            ensure_channel(connection, entered, message.channel)
            _attach(connection, thread_id, message)
            values = {
                "thread_id": thread_id,
                "id": message.id,
                "position": entered.row.inbox,
                "channel": message.channel,
                "author": message.author,
                "text": message.text,
                "attachments": message.attachments,
                "model": message.model,
                "mode": message.mode,
                "status": MessageStatus.QUEUED,
                "hash": hash,
                "at": entered.now,
                "updated_at": entered.now,
            }
            added = connection.execute(sa.insert(table).values(values).returning(table)).one()
            return Put(_row(added), True, entered.row)

        return await write_and_wake(self._database, self._watch, thread_id, work)

    async def get(self, thread_id: str, id: str) -> MessageRow:
        """Return the message; raises ``NotFound``."""
        return await self._database.read(lambda connection: _get(connection, thread_id, id))

    async def queued(self, thread_id: str, channel: str | None = None) -> list[MessageRow]:
        """Return what waits for a turn, in order; None: in all channels."""
        query = sa.select(table).where(table.c.thread_id == thread_id, sa.text(QUEUED)).order_by(table.c.position)
        return await self._database.rows(
            query if channel is None else query.where(table.c.channel == channel), _message
        )

    async def of_turn(self, turn_id: str) -> list[MessageRow]:
        """Return the messages that a turn answers, in order."""
        return await self._database.rows(
            sa.select(table).where(table.c.turn_id == turn_id).order_by(table.c.seq), _message
        )

    async def page(
        self,
        thread_id: str,
        *,
        limit: int,
        after: int = 0,
        channel: str | None = None,
        statuses: Collection[str] | None = None,
    ) -> Page[MessageRow]:
        """Return at most ``limit`` messages with a greater ``position`` than ``after``, in order.

        Fewer where they are long: a page ends with the message that makes it ``PAGE_BYTES`` or more.
        """
        query = sa.select(table).where(table.c.thread_id == thread_id, table.c.position > after)
        if channel is not None:
            query = query.where(table.c.channel == channel)
        if statuses is not None:
            query = query.where(table.c.status.in_(statuses))
        return await self._database.read(
            lambda connection: read_page(
                connection, query, table.c.text, lambda c: [c.position], limit=limit, make=_message
            )
        )

    async def cancel(self, thread_id: str, id: str) -> MessageRow:
        """Take back a message that is still queued; one that is canceled already is returned as it is.

        Raises ``WrongState`` if a turn has it or had it, and ``NotFound``.
        """

        def work(connection: sa.Connection) -> MessageRow:
            entered = enter_any(connection, thread_id)
            found = _get(connection, thread_id, id)
            if found.status == MessageStatus.CANCELED:
                return found
            if found.status != MessageStatus.QUEUED:
                raise WrongState(f"message {id} is {found.status} and cannot be taken back; abort its turn instead")
            return _canceled(connection, entered, table.c.id == id)[0]

        return await write_and_wake(self._database, self._watch, thread_id, work)

    async def cancel_queued(self, thread_id: str, channel: str | None = None) -> list[MessageRow]:
        """Take back all that is queued, in one channel or in all; returns them."""
        these = sa.true() if channel is None else table.c.channel == channel
        return await write_and_wake(
            *(self._database, self._watch, thread_id),
            lambda connection: _canceled(connection, enter_any(connection, thread_id), these),
        )

    async def _stored(self, thread_id: str, id: str) -> tuple[MessageRow, ThreadRow] | None:
        """Find a repeated message without writing anything; the thread is read after it, as ``Put`` promises."""
        alive = sa.select(threads).where(threads.c.id == thread_id, sa.text(NOT_DELETED))

        def work(connection: sa.Connection) -> tuple[MessageRow, ThreadRow] | None:
            message = connection.execute(_one(thread_id, id)).one_or_none()
            thread = None if message is None else connection.execute(alive).one_or_none()
            return None if message is None or thread is None else (_row(message), thread_row(thread))

        return await self._database.read(work)


def _row(found: sa.Row[tuple[object, ...]]) -> MessageRow:
    return _message(**found._mapping)


def _message(**columns: Any) -> MessageRow:
    seq = columns["seq"]
    return MessageRow(**columns, after=None if seq is None else seq - 1)


def _one(thread_id: str, id: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(table).where(table.c.thread_id == thread_id, table.c.id == id)


def _get(connection: sa.Connection, thread_id: str, id: str) -> MessageRow:
    found = connection.execute(_one(thread_id, id)).one_or_none()
    if found is None:
        raise NotFound(f"there is no message {id} in thread {thread_id}")
    return _row(found)


def _hash(message: NewMessage) -> str:
    """Return a hash of all that the client said; another message with the same id is the client's mistake."""
    said = [message.channel, message.author, message.text, list(message.attachments), message.model, message.mode]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _same(stored: MessageRow, hash: str) -> MessageRow:
    if stored.hash != hash:
        raise IdempotencyMismatch(
            f"message {stored.id} is there already and says something else; send another one with an id of its own"
        )
    return stored


def _attach(connection: sa.Connection, thread_id: str, message: NewMessage) -> None:
    """Note that the message's uploads are in use from now on."""
    if not message.attachments:
        return
    wanted = set(message.attachments)
    of_thread = (thread_files.c.thread_id == thread_id, thread_files.c.kind == FileKind.UPLOAD)
    update = (
        sa.update(thread_files)
        .where(*of_thread, thread_files.c.id.in_(wanted))
        .values(message_id=sa.func.coalesce(thread_files.c.message_id, message.id))
        .returning(thread_files.c.id)
    )
    missing = wanted - set(connection.scalars(update))
    if missing:
        raise FileMissing(f"no such upload in thread {thread_id}: {', '.join(sorted(missing))}; upload it first")


def _canceled(connection: sa.Connection, entered: Entered, these: sa.ColumnElement[bool]) -> list[MessageRow]:
    """Cancel them, and tell of each: who waits for its answer follows the events."""
    queued = sa.update(table).where(table.c.thread_id == entered.row.id, sa.text(QUEUED), these)
    update = queued.values(status=MessageStatus.CANCELED, updated_at=entered.now).returning(table)
    rows = sorted((_row(found) for found in connection.execute(update)), key=lambda row: row.position)
    for channel, some in groupby(sorted(rows, key=lambda row: row.channel), key=lambda row: row.channel):
        told = [TurnEvent(Kind.MESSAGE_CANCELED, {"message_id": row.id}) for row in some]
        append(connection, entered, told, channel=channel)
    return rows
