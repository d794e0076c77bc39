"""What was said in a thread, by users and agent: from the messages and the turns, not from the events.

A turn keeps its answer when it ends. So the transcript is a short read however many deltas there were, and is the same
after those are joined or forgotten.
"""

import sqlalchemy as sa

from holdfast.records.threads import TranscriptLine, TurnRow
from holdfast.store.threads.tables import messages, turns
from holdfast.store.threads.turn_end import answer_of

_COLUMNS = ("text", "channel", "turn_id", "author", "at")


def read(
    connection: sa.Connection, thread_id: str, *, channel: str | None, limit: int, after: int = 0
) -> list[TranscriptLine]:
    """Return what ``TurnStore.transcript`` says."""
    rows = connection.execute(_query(thread_id, channel, after).limit(limit)).all()
    lines = [_line(connection, row) for row in reversed(rows)]
    return [line for line in lines if line.text or line.role == "user"]


def _query(thread_id: str, channel: str | None, after: int) -> sa.Select[tuple[object, ...]]:
    wanted = [turns.c.thread_id == thread_id, turns.c.reverted.is_(False)]
    if after:
        wanted.append(turns.c.first_seq > after)
    if channel is not None:
        wanted.append(turns.c.channel == channel)
    asked = (
        sa.select(
            turns.c.first_seq,
            messages.c.position,
            messages.c.text,
            turns.c.channel,
            messages.c.turn_id,
            messages.c.author,
            messages.c.at,
        )
        .select_from(messages.join(turns, messages.c.turn_id == turns.c.id))
        .where(*wanted)
    )
    answered = sa.select(
        turns.c.first_seq,
        sa.null().label("position"),
        turns.c.answer,
        turns.c.channel,
        turns.c.id,
        sa.null().label("author"),
        sa.func.coalesce(turns.c.ended_at, turns.c.created_at),
    ).where(*wanted)
    both = sa.union_all(asked, answered).subquery()
    newest_first = (both.c.first_seq.desc(), both.c.position.desc().nulls_first())
    return sa.select(both).order_by(*newest_first)


def _line(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> TranscriptLine:
    found = row._mapping
    if found["position"] is not None:
        return TranscriptLine(role="user", **{name: found[name] for name in _COLUMNS})
    values = {name: found[name] for name in _COLUMNS}
    if values["text"] is None:
        values["text"] = _so_far(connection, values["turn_id"])
    return TranscriptLine(role="agent", **values)


def _so_far(connection: sa.Connection, turn_id: str) -> str:
    """Return the answer of a turn that has not ended, or did so after we looked: its events are there anyway."""
    turn = TurnRow(**connection.execute(sa.select(turns).where(turns.c.id == turn_id)).one()._mapping)
    return turn.answer if turn.answer is not None else answer_of(connection, turn, turn.last_seq)
