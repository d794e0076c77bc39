"""Small queries about rows of sessions that share a transaction with others."""

from datetime import UTC, datetime
from typing import NoReturn

import sqlalchemy as sa

from holdfast.errors import Conflict, IdempotencyMismatch, SessionNotFound, StaleRow, TooManySessions
from holdfast.records.sessions import SessionRow
from holdfast.store.tables import LIVE
from holdfast.store.tables import sessions as table

SELECT = sa.select(table)


def row_of(found: sa.Row[tuple[object, ...]]) -> SessionRow:
    return SessionRow(**found._mapping)


def find(connection: sa.Connection, id: str) -> SessionRow | None:
    found = (connection.execute(SELECT.where(table.c.id == id))).one_or_none()
    return None if found is None else row_of(found)


def get(connection: sa.Connection, id: str) -> SessionRow:
    row = find(connection, id)
    if row is None:
        raise no_session(id)
    return row


def no_session(id: str) -> SessionNotFound:
    """Also said of a session that is somebody else's: the two must look the same."""
    return SessionNotFound(f"there is no session {id}")


def by_key(connection: sa.Connection, row: SessionRow) -> SessionRow | None:
    if row.idempotency_key is None:
        return None
    query = SELECT.where(table.c.owner == row.owner, table.c.idempotency_key == row.idempotency_key)
    found = (connection.execute(query)).one_or_none()
    if found is None:
        return None
    existing = row_of(found)
    if existing.idempotency_hash != row.idempotency_hash:
        raise IdempotencyMismatch(
            f"the idempotency key was already used for session {existing.id} with another request; use a new key"
        )
    return existing


def refuse_over(connection: sa.Connection, max_live: int) -> None:
    live = _count_live(connection)
    if live >= max_live:
        raise TooManySessions(
            f"there are {live} live sessions and the daemon's limit (max_sessions) is {max_live}; destroy one, wait "
            "for one to expire, or raise the limit in the configuration"
        )


def refuse_over_own(connection: sa.Connection, owner: str, max_owned: int) -> None:
    owned = _count_live(connection, table.c.owner == owner)
    if owned >= max_owned:
        raise TooManySessions(
            f"{owner} has {owned} live sessions and the limit of this key is {max_owned}; destroy one or wait for one "
            "to expire"
        )


def _count_live(connection: sa.Connection, *of: sa.ColumnElement[bool]) -> int:
    count = sa.select(sa.func.count()).select_from(table).where(table.c.status.in_(LIVE), *of)
    return connection.execute(count).scalar_one()


def refuse_stale(connection: sa.Connection, id: str) -> NoReturn:
    row = get(connection, id)
    raise StaleRow(
        f"session {id} was changed by someone else: it is now {row.status}, generation {row.generation}, "
        f"leased by {row.lease_owner or 'nobody'}"
    )


def refuse_held(connection: sa.Connection, id: str) -> NoReturn:
    row = get(connection, id)
    until = datetime.fromtimestamp(row.lease_expires_at or 0.0, UTC).isoformat(timespec="milliseconds")
    raise Conflict(f"session {id} is leased by {row.lease_owner} until {until}; try again then")
