"""The end of a turn, inside a transaction: state, messages, answer, channel and the last event, all or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from holdfast.errors import TurnNotFound
from holdfast.records.threads import MessageStatus, TurnRow, TurnState
from holdfast.store.threads.guard import Entered, append, change_channel
from holdfast.store.threads.tables import messages
from holdfast.store.threads.tables import thread_channels as channels
from holdfast.store.threads.tables import thread_events as log
from holdfast.store.threads.tables import threads as thread_table
from holdfast.store.threads.tables import turns as table
from holdfast.store.usage_tables import of_turn
from holdfast.vocabulary.turn_events import AgentStatus, Kind, StopReason, TurnEvent

MOST_ANSWER: Final = 1_000_000
"""Characters of a turn's answer that are kept."""
_BECOMES = {
    StopReason.END_TURN: MessageStatus.DONE,
    StopReason.ERROR: MessageStatus.FAILED,
    StopReason.CANCELED: MessageStatus.CANCELED,
}


def end_turn(
    connection: sa.Connection,
    entered: Entered,
    turn_id: str,
    finalize: TurnEvent,
    *,
    events: Sequence[TurnEvent] = (),
    artifacts: Sequence[str] = (),
    cursor: str | None = None,
) -> TurnRow:
    """Do what ``TurnStore.end`` says; the thread's row is held."""
    turn = turn_of(connection, entered, turn_id)
    if turn.state == TurnState.ENDED:
        return turn
    reason = StopReason(str(finalize.data["reason"]))
    error = finalize.data.get("error")
    status = AgentStatus.ERROR if reason is StopReason.ERROR else AgentStatus.IDLE
    last = TurnEvent(finalize.kind, {**finalize.data, **_added(connection, turn_id, artifacts)})
    told = [*events, *_status_told(connection, turn, status, events), last]
    newest = append(connection, entered, told, channel=turn.channel, turn_id=turn_id)
    ended = change_turn(
        connection,
        turn_id,
        {
            "state": TurnState.ENDED,
            "stop_reason": reason.value,
            "error": error if isinstance(error, Mapping) else None,
            "artifacts": artifacts,
            "answer": answer_of(connection, turn, newest),
            "cursor": turn.cursor if cursor is None else cursor,
            "last_seq": newest,
            "ended_at": entered.now,
        },
    )
    taken = sa.update(messages).where(messages.c.turn_id == turn_id)
    connection.execute(taken.values(status=_BECOMES[reason], updated_at=entered.now))
    change_channel(connection, entered, turn.channel, {"agent_status": status.value, **kept_of(events, status=False)})
    active = sa.update(thread_table).where(thread_table.c.id == turn.thread_id)
    connection.execute(active.values(last_activity_at=entered.now))
    return ended


def _status_told(
    connection: sa.Connection, turn: TurnRow, status: AgentStatus, events: Sequence[TurnEvent]
) -> list[TurnEvent]:
    """Tell what the agent's status becomes with the end of a turn, unless that is what was last told of it."""
    this = (channels.c.thread_id == turn.thread_id, channels.c.channel == turn.channel)
    before = connection.scalar(sa.select(channels.c.agent_status).where(*this)) or AgentStatus.IDLE.value
    if kept_of(events).get("agent_status", before) == status.value:
        return []
    return [TurnEvent(Kind.STATUS, {"status": status.value})]


def _added(connection: sa.Connection, turn_id: str, artifacts: Sequence[str]) -> Mapping[str, object]:
    """Return what the last event says besides what the agent told: the turn's files, and what it has cost."""
    added: dict[str, object] = {"artifacts": list(artifacts)} if artifacts else {}
    cost = of_turn(connection, turn_id)
    if cost.calls:
        added["usage"] = cost.to_json()
    return added


def turn_of(connection: sa.Connection, entered: Entered, turn_id: str) -> TurnRow:
    """Return the turn, which must be of the thread that was entered."""
    query = sa.select(table).where(table.c.id == turn_id, table.c.thread_id == entered.row.id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise no_turn(turn_id)
    return TurnRow(**found._mapping)


def no_turn(turn_id: str) -> TurnNotFound:
    return TurnNotFound(f"there is no turn {turn_id}")


def change_turn(connection: sa.Connection, turn_id: str, values: Mapping[str, object]) -> TurnRow:
    update = sa.update(table).where(table.c.id == turn_id).values(**values).returning(table)
    return TurnRow(**connection.execute(update).one()._mapping)


def answer_of(connection: sa.Connection, turn: TurnRow, newest: int) -> str:
    """Return what the agent said in a turn so far."""
    its = (log.c.thread_id == turn.thread_id, log.c.seq.between(turn.first_seq, newest), log.c.turn_id == turn.id)
    query = (
        sa.select(log.c.data).where(*its, log.c.kind.in_((Kind.TEXT_DELTA.value, Kind.ERROR.value))).order_by(log.c.seq)
    )
    return said(connection.scalars(query), most=MOST_ANSWER)


def said(told: Iterable[Mapping[str, object]], *, most: int) -> str:
    """Return the text of the deltas without thinking, and without what was taken back; an empty line between its parts.

    Of a text that is longer than ``most`` its beginning and its end: it is kept as long as the thread is.
    """
    parts: list[tuple[tuple[object, object], list[str]]] = []
    for one in told:
        discarded = one.get("discards")
        if isinstance(discarded, list):
            parts = [part for part in parts if part[0][1] not in discarded]
        if one.get("thought") or "text" not in one:
            continue
        here = (one.get("message_id"), one.get("part_id"))
        if not parts or parts[-1][0] != here:
            parts.append((here, []))
        parts[-1][1].append(str(one["text"]))
    whole = "\n\n".join("".join(texts) for _part, texts in parts)
    if len(whole) <= most:
        return whole
    left_out = f"\n\n[… {len(whole) - most} characters are left out here …]\n\n"
    return whole[: most // 2] + left_out + whole[-(most // 2) :]


def kept_of(events: Sequence[TurnEvent], *, status: bool = True) -> dict[str, object]:
    """Return what events say that the channel's row keeps: the last status and the last title."""
    kept: dict[str, object] = {}
    for event in events:
        if event.kind is Kind.STATUS and status:
            kept["agent_status"] = str(event.data["status"])
        elif event.kind is Kind.TITLE:
            kept["title"] = str(event.data["title"])
    return kept
