"""What is told to the world of a thread's life, in the log that sessions have: same numbers, same transaction.

A thread has a log of its own, with every word. This is the little that somebody wants to know who does not follow it.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

import sqlalchemy as sa

from holdfast.records.threads import ThreadRow
from holdfast.store import events as log
from holdfast.store.tables import session_events as table
from holdfast.store.threads.tables import messages
from holdfast.vocabulary.turn_events import Kind as Told
from holdfast.vocabulary.turn_events import TurnEvent


class ThreadKind(StrEnum):
    CREATED = "thread.created"
    TURN_ENDED = "thread.turn_ended"
    QUESTION = "thread.question"
    ERROR = "thread.error"
    USAGE_ALERT = "thread.usage_alert"
    DELETED = "thread.deleted"


MOST_PER_HOUR: Final = 60
"""Of what a sandbox can bring about by itself, for each thread and kind. All of it is in the thread's own events."""
_HOUR = 3600.0
_OF: Final[Mapping[Told, ThreadKind]] = {
    Told.FINALIZE: ThreadKind.TURN_ENDED,
    Told.QUESTION: ThreadKind.QUESTION,
    Told.USAGE_ALERT: ThreadKind.USAGE_ALERT,
}
_FIELDS: Final[Mapping[Told, Collection[str]]] = {
    Told.FINALIZE: ("reason", "error", "artifacts", "usage"),
    Told.QUESTION: ("question_id", "text", "options", "deadline", "default"),
    Told.USAGE_ALERT: ("what", "message"),
}
_MOST_TEXT = 2000


def tell(connection: sa.Connection, row: ThreadRow, kind: ThreadKind, at: float, data: Mapping[str, object]) -> None:
    """Tell of it in a transaction that holds the thread's row, as late as possible."""
    told = {"key": row.key, **data}
    log.append(
        connection,
        kind.value,
        row.session_id or "",
        at=at,
        data=told,
        owner=row.owner,
        thread_id=row.id,
        thread_key=row.key,
    )


def tell_of(
    connection: sa.Connection,
    row: ThreadRow,
    events: Sequence[TurnEvent],
    *,
    at: float,
    channel: str,
    turn_id: str | None,
) -> None:
    """Tell the world, too, what it wants to know of these events of a thread."""
    for event in events:
        kind = _OF.get(event.kind)
        if kind is None or (kind is not ThreadKind.TURN_ENDED and not _has_room(connection, row.id, kind, at)):
            continue
        known = {name: _cut(event.data[name]) for name in _FIELDS[event.kind] if name in event.data}
        where: dict[str, object] = {"channel": channel, "turn_id": turn_id}
        if kind is ThreadKind.TURN_ENDED:
            asked = sa.select(messages.c.id).where(messages.c.turn_id == turn_id).order_by(messages.c.position)
            where["message_ids"] = list(connection.scalars(asked))
        tell(connection, row, kind, at, {**where, **known})


def _cut(value: object) -> object:
    """Return it cut: words of an agent have any length."""
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {name: _cut(one) for name, one in value.items()}
    return [_cut(one) for one in value[:200]] if isinstance(value, list | tuple) else value


def _has_room(connection: sa.Connection, thread_id: str, kind: ThreadKind, at: float) -> bool:
    its = (table.c.thread_id == thread_id, table.c.kind == kind.value, table.c.at > at - _HOUR)
    newest = sa.select(table.c.seq).where(*its).limit(MOST_PER_HOUR)
    return len(connection.execute(newest).all()) < MOST_PER_HOUR
