"""Turns of threads: what the agent was asked, how far it has been heard, and how it ended.

Exactly once is made here: the events of a batch and the cursor behind it are one transaction, guarded by the lease and
by the cursor before it. Whoever comes later reads on from the cursor in the row.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from holdfast.errors import BadInput, StaleRow, WrongState
from holdfast.records.threads import Lease, MessageRow, MessageStatus, Mode, TranscriptLine, TurnRow, TurnState
from holdfast.store.database.database import Database, Work
from holdfast.store.threads import transcript
from holdfast.store.threads.guard import Entered, append, change_channel, clock, enter, give_back, write_and_wake
from holdfast.store.threads.tables import QUEUED, UNENDED, messages, thread_files
from holdfast.store.threads.tables import turns as table
from holdfast.store.threads.turn_end import change_turn, end_turn, kept_of, no_turn, turn_of
from holdfast.store.threads.watch import ThreadWatch
from holdfast.vocabulary.turn_events import Kind, TurnEvent

T = TypeVar("T")


class TurnStore:
    """The turns. Every change is under the lease and raises as ``ThreadStore`` says; ``TurnNotFound`` without a row.

    Kinds of events: any but ``message.finalize``, which only ``end`` takes, so that each turn has exactly one.
    """

    def __init__(self, database: Database, watch: ThreadWatch) -> None:
        self._database = database
        self._watch = watch

    async def begin(
        self, lease: Lease, channel: str, turn_id: str, *, events: Sequence[TurnEvent] = ()
    ) -> TurnRow | None:
        """Make the turn of what is next in the channel's queue; None if nothing is, or all was taken back meanwhile.

        One message, or if that is of mode ``collect`` all such right behind it. They are ``in_turn`` then, each with
        its ``message.create`` event (message_id, role, text, author, attachments, turn_id); ``events`` come after
        those. The model is the last one named. The turn is ``preparing``. Raises ``WrongState`` if the channel has a
        turn that has not ended: a channel has one at a time, which the database itself guards.
        """
        _refuse_finalize(events)

        def work(connection: sa.Connection) -> TurnRow | None:
            entered = enter(connection, lease)
            _refuse_second(connection, lease.thread_id, channel)
            batch = _next(connection, lease.thread_id, channel)
            if not batch:
                return None
            told = [*(_created(message, turn_id) for message in batch), *events]
            newest = append(connection, entered, told, channel=channel, turn_id=turn_id)
            first = newest - len(told) + 1
            for seq, message in enumerate(batch, first):
                _take_up(connection, message, turn_id, seq, entered.now)
            values = {
                "id": turn_id,
                "thread_id": lease.thread_id,
                "channel": channel,
                "prompt": "\n\n".join(message.text for message in batch),
                "attachments": [one for message in batch for one in message.attachments],
                "model": next((message.model for message in reversed(batch) if message.model), None),
                "state": TurnState.PREPARING,
                "accepted": False,
                "cursor": "",
                "attempts": 0,
                "artifacts": (),
                "reverted": False,
                "first_seq": first,
                "last_seq": newest,
                "created_at": entered.now,
            }
            return _row(connection.execute(sa.insert(table).values(values).returning(table)).one())

        return await self._write(lease, work)

    async def steer(self, lease: Lease, turn_id: str, message_id: str) -> MessageRow | None:
        """Take the message into the running turn: ``in_turn``, with its ``message.create``. None if it is not queued.

        Call it BEFORE telling the agent, so that a daemon that dies in between does not run it twice.
        Raises ``WrongState`` if the turn has ended, or is about to (``collecting``): the message stays queued.
        """

        def work(connection: sa.Connection) -> MessageRow | None:
            entered = enter(connection, lease)
            turn = _unended(connection, entered, turn_id)
            if turn.state == TurnState.COLLECTING:
                raise WrongState(f"turn {turn_id} is about to end; the message is for the next one")
            this = (messages.c.thread_id == turn.thread_id, messages.c.id == message_id, sa.text(QUEUED))
            found = connection.execute(sa.select(messages).where(*this)).one_or_none()
            if found is None:
                return None
            message = MessageRow(**found._mapping)
            told = [_created(message, turn_id)]
            newest = append(connection, entered, told, channel=turn.channel, turn_id=turn_id)
            change_turn(connection, turn_id, {"last_seq": newest})
            return _take_up(connection, message, turn_id, newest, entered.now)

        return await self._write(lease, work)

    async def get(self, turn_id: str) -> TurnRow:
        """Return the turn; raises ``TurnNotFound``."""
        found = await self._database.row(sa.select(table).where(table.c.id == turn_id), TurnRow)
        if found is None:
            raise no_turn(turn_id)
        return found

    async def page(self, thread_id: str, *, limit: int, before: int | None = None) -> list[TurnRow]:
        """Return at most ``limit`` turns, newest first; ``before`` is the ``first_seq`` of the last one of a page."""
        query = sa.select(table).where(table.c.thread_id == thread_id).order_by(table.c.first_seq.desc()).limit(limit)
        return await self._database.rows(query if before is None else query.where(table.c.first_seq < before), TurnRow)

    async def unfinished(self, thread_id: str) -> list[TurnRow]:
        """Return turns that have not ended, oldest first: what a successor takes up. At most one per channel."""
        query = sa.select(table).where(table.c.thread_id == thread_id, sa.text(UNENDED))
        return await self._database.rows(query.order_by(table.c.first_seq), TurnRow)

    async def note(
        self,
        lease: Lease,
        turn_id: str,
        *,
        state: str | None = None,
        accepted: bool | None = None,
        agent_session_id: str | None = None,
        attempt: bool = False,
        events: Sequence[TurnEvent] = (),
    ) -> TurnRow:
        """Set what is given, and add events that do not come from the agent's stream; the cursor stays.

        ``attempt`` counts ``attempts`` up: before each try to prompt. ``accepted`` once true stays true. A new
        ``agent_session_id`` before the prompt was accepted starts the cursor anew. Raises ``WrongState`` if the turn
        has ended.
        """
        _refuse_finalize(events)

        def work(connection: sa.Connection) -> TurnRow:
            well = {"healthy_at": clock(connection)} if attempt else {}  # it was looked at right before
            entered = enter(connection, lease, events=events, **well)
            turn = _unended(connection, entered, turn_id)
            values: dict[str, object] = {"last_seq": entered.row.last_seq} if events else {}
            if state is not None:
                values["state"] = state
            if accepted and not turn.accepted:
                values |= {"accepted": True, "started_at": entered.now}
            if agent_session_id is not None:
                values["agent_session_id"] = agent_session_id
                if agent_session_id != turn.agent_session_id and not turn.accepted:
                    values["cursor"] = ""
            if attempt:
                values["attempts"] = turn.attempts + 1
            append(connection, entered, events, channel=turn.channel, turn_id=turn_id, numbered=True)
            _keep(connection, entered, turn.channel, events)
            return change_turn(connection, turn_id, values) if values else turn

        return await self._write(lease, work)

    async def advance(
        self,
        lease: Lease,
        turn_id: str,
        *,
        after: str,
        cursor: str,
        events: Sequence[TurnEvent],
        state: str | None = None,
    ) -> TurnRow:
        """Add the events that stand between two cursors, and move the cursor on: both or neither.

        Calling it again after an error that left open whether it happened is safe: if the cursor already stands
        at ``cursor``, nothing is added. Raises ``StaleRow`` if it stands anywhere else but ``after``, and
        ``WrongState`` if the turn has ended. Sets ``accepted``: an agent that tells of a turn has accepted it.
        Events that set a channel's ``agent.status`` or ``title`` are kept in its row, too.
        """
        _refuse_finalize(events)
        here = (table.c.id == turn_id, table.c.thread_id == lease.thread_id, table.c.cursor == after, sa.text(UNENDED))

        def work(connection: sa.Connection) -> TurnRow:
            entered = enter(connection, lease, events=events)
            values: dict[str, object] = {
                "cursor": cursor,
                "accepted": True,
                "started_at": sa.func.coalesce(table.c.started_at, entered.now),
            }
            if events:
                values["last_seq"] = entered.row.last_seq
            if state is not None:
                values["state"] = state
            found = connection.execute(sa.update(table).where(*here).values(values).returning(table)).one_or_none()
            if found is None:
                return _already(connection, entered, turn_id, None if cursor == after else cursor, events)
            turn = _row(found)
            append(connection, entered, events, channel=turn.channel, turn_id=turn_id, numbered=True)
            _keep(connection, entered, turn.channel, events)
            return turn

        return await self._write(lease, work)

    async def end(
        self,
        lease: Lease,
        turn_id: str,
        finalize: TurnEvent,
        *,
        events: Sequence[TurnEvent] = (),
        artifacts: Sequence[str] = (),
        cursor: str | None = None,
    ) -> TurnRow:
        """End the turn: ``events``, then ``finalize``, in one transaction with the state and its messages.

        ``finalize`` is the ``message.finalize`` event: its ``reason`` and ``error`` become the row's, ``artifacts``
        (ids of files) are added to its data, and ``usage`` where the turn has made calls to models.
        The messages become done, failed or canceled. The agent's text is kept in ``answer``, so the transcript
        outlives the deltas; the channel's status becomes idle, or error, and is told if it was another. A turn that
        has ended already is returned as it is, and nothing is added.
        """
        _refuse_finalize(events)
        if finalize.kind is not Kind.FINALIZE:
            raise BadInput(f"a turn ends with {Kind.FINALIZE.value}, not with {finalize.kind.value}")

        def work(connection: sa.Connection) -> TurnRow:
            entered = enter(connection, lease)
            return end_turn(connection, entered, turn_id, finalize, events=events, artifacts=artifacts, cursor=cursor)

        return await self._write(lease, work)

    async def revert(self, lease: Lease, turn_id: str, *, events: Sequence[TurnEvent] = ()) -> list[TurnRow]:
        """Take back the turn and all later ones of its channel: the transcript leaves them out.

        Returns them; none where that was done before, and nothing is added then. Raises ``WrongState`` if one of them
        has not ended.
        """
        _refuse_finalize(events)

        def work(connection: sa.Connection) -> list[TurnRow]:
            entered = enter(connection, lease, events=events)
            turn = turn_of(connection, entered, turn_id)
            later = (
                table.c.thread_id == turn.thread_id,
                table.c.channel == turn.channel,
                table.c.first_seq >= turn.first_seq,
            )
            running = connection.execute(sa.select(table).where(*later, sa.text(UNENDED))).first()
            if running is not None:
                raise WrongState(f"turn {running.id} has not ended; abort it before taking turns back")
            if turn.reverted:
                give_back(connection, entered, events)
                return []
            append(connection, entered, events, channel=turn.channel, numbered=True)
            update = sa.update(table).where(*later).values(reverted=True).returning(table)
            return sorted((_row(found) for found in connection.execute(update)), key=lambda row: row.first_seq)

        return await self._write(lease, work)

    async def transcript(
        self,
        thread_id: str,
        *,
        channel: str | None = None,
        limit: int = 1000,
        after: int = 0,
    ) -> list[TranscriptLine]:
        """Return the last ``limit`` messages of users and agent, oldest first, without thinking, tools, reverted turns.

        What is queued, or was taken back before a turn had it, is left out. The answer of a turn that has not ended
        is as far as it came. ``after`` leaves out turns that began before that event.
        """
        work = partial(transcript.read, thread_id=thread_id, channel=channel, limit=limit, after=after)
        return await self._database.read(work)

    async def _write(self, lease: Lease, work: Work[T]) -> T:
        return await write_and_wake(self._database, self._watch, lease.thread_id, work)


def _row(found: sa.Row[tuple[object, ...]]) -> TurnRow:
    return TurnRow(**found._mapping)


def _next(connection: sa.Connection, thread_id: str, channel: str) -> list[MessageRow]:
    """Return the first message of the queue; where that is to be collected, all such up to the first that is not."""
    queue = sa.select(messages).where(messages.c.thread_id == thread_id, sa.text(QUEUED), messages.c.channel == channel)
    batch: list[MessageRow] = []
    for found in connection.execute(queue.order_by(messages.c.position)):
        message = MessageRow(**found._mapping)
        if batch and message.mode != Mode.COLLECT:
            break
        batch.append(message)
        if message.mode != Mode.COLLECT:
            break
    return batch


def _created(message: MessageRow, turn_id: str) -> TurnEvent:
    data = {
        "message_id": message.id,
        "role": "user",
        "text": message.text,
        "author": message.author,
        "attachments": list(message.attachments),
        "turn_id": turn_id,
    }
    return TurnEvent(Kind.MESSAGE_CREATE, data)


def _take_up(connection: sa.Connection, message: MessageRow, turn_id: str, seq: int, now: float) -> MessageRow:
    if message.attachments:
        its = (thread_files.c.thread_id == message.thread_id, thread_files.c.id.in_(message.attachments))
        free = sa.update(thread_files).where(*its, thread_files.c.turn_id.is_(None))
        connection.execute(free.values(turn_id=turn_id))
    this = (messages.c.thread_id == message.thread_id, messages.c.id == message.id)
    taken = {"status": MessageStatus.IN_TURN, "turn_id": turn_id, "seq": seq, "updated_at": now}
    update = sa.update(messages).where(*this).values(taken).returning(messages)
    return MessageRow(**connection.execute(update).one()._mapping)


def _keep(connection: sa.Connection, entered: Entered, channel: str, events: Sequence[TurnEvent]) -> None:
    kept = kept_of(events)
    if kept:
        change_channel(connection, entered, channel, kept)


def _unended(connection: sa.Connection, entered: Entered, turn_id: str) -> TurnRow:
    turn = turn_of(connection, entered, turn_id)
    _refuse_ended(turn)
    return turn


def _already(
    connection: sa.Connection, entered: Entered, turn_id: str, cursor: str | None, events: Sequence[TurnEvent]
) -> TurnRow:
    """Return the turn if it stands where it should be moved to: that has happened before. The numbers go back."""
    turn = turn_of(connection, entered, turn_id)
    if turn.cursor == cursor:
        give_back(connection, entered, events)
        return turn
    _refuse_ended(turn)
    raise StaleRow(f"turn {turn_id} has been read on from where you stand: read the row, and go on from its cursor")


def _refuse_ended(turn: TurnRow) -> None:
    if turn.state == TurnState.ENDED:
        raise WrongState(f"turn {turn.id} has ended ({turn.stop_reason}); nothing can be added to it")


def _refuse_second(connection: sa.Connection, thread_id: str, channel: str) -> None:
    running = sa.select(table.c.id).where(table.c.thread_id == thread_id, table.c.channel == channel, sa.text(UNENDED))
    found = connection.scalar(running)
    if found is not None:
        raise WrongState(f"channel {channel} of thread {thread_id} is in turn {found}; end it before the next")


def _refuse_finalize(events: Sequence[TurnEvent]) -> None:
    if any(event.kind is Kind.FINALIZE for event in events):
        raise BadInput(f"{Kind.FINALIZE.value} ends a turn: hold it back, and give it to TurnStore.end")
