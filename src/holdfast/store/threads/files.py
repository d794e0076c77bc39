"""Files that came with messages and files that turns left behind: where they are, and whose."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import sqlalchemy as sa

from holdfast.errors import FileMissing
from holdfast.records.threads import FileKind, ThreadFileRow, TurnState
from holdfast.store.database.database import Database
from holdfast.store.threads.guard import clock, enter_any
from holdfast.store.threads.tables import UNUSED, turns
from holdfast.store.threads.tables import thread_files as table

_AT_ONCE = 500
_COLUMNS = sa.select(*(table.c[name] for name in ThreadFileRow.__dataclass_fields__))


class ThreadFiles:
    """The files of threads; only what is said of them, the bytes are elsewhere. Raises what ``ThreadStore`` raises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: ThreadFileRow) -> ThreadFileRow:
        """Note a file whose bytes are in place; an id that is there already is returned as it is.

        Raises ``ThreadNotFound``. An upload has no turn until a turn takes its message up.
        """
        values = {name: getattr(row, name) for name in ThreadFileRow.__dataclass_fields__}

        def work(connection: sa.Connection) -> ThreadFileRow:
            entered = enter_any(connection, row.thread_id)
            there = connection.execute(_COLUMNS.where(table.c.id == row.id)).one_or_none()
            if there is not None:
                return ThreadFileRow(**there._mapping)
            added = sa.insert(table).values(values | {"created_at": entered.now})
            connection.execute(added)
            return replace(row, created_at=entered.now)

        return await self._database.write(work)

    async def get(self, thread_id: str, id: str) -> ThreadFileRow:
        """Return the file of this thread; raises ``FileMissing``, also if it is another thread's."""
        query = _COLUMNS.where(table.c.thread_id == thread_id, table.c.id == id)
        found = await self._database.row(query, ThreadFileRow)
        if found is None:
            raise FileMissing(f"there is no file {id} in thread {thread_id}")
        return found

    async def of_thread(self, thread_id: str, *, kind: str | None = None) -> list[ThreadFileRow]:
        """Return all files of a thread, oldest first."""
        query = _COLUMNS.where(table.c.thread_id == thread_id).order_by(table.c.created_at, table.c.id)
        return await self._database.rows(query if kind is None else query.where(table.c.kind == kind), ThreadFileRow)

    async def some(self, thread_id: str, ids: Collection[str]) -> list[ThreadFileRow]:
        """Return those of these ids that there are, in the order asked for."""
        found = await self._database.rows(
            _COLUMNS.where(table.c.thread_id == thread_id, table.c.id.in_(ids)), ThreadFileRow
        )
        by_id = {row.id: row for row in found}
        return [by_id[id] for id in ids if id in by_id]

    async def remove_unused(self, *, older_than: float) -> list[str]:
        """Forget uploads that no message has named for so many seconds; returns their paths, for removal."""

        def work(connection: sa.Connection) -> list[str]:
            old = table.c.created_at <= clock(connection) - older_than
            gone = sa.delete(table).where(sa.text(UNUSED), old).returning(table.c.path)
            return list(connection.scalars(gone))

        return await self._database.write(work)

    async def room(self, thread_id: str) -> tuple[int, int]:
        """Return how many bytes its files have, and how many there are."""
        query = sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0), sa.func.count()).where(
            table.c.thread_id == thread_id
        )
        size, count = await self._database.read(lambda connection: connection.execute(query).one())
        return int(size), int(count)

    async def prune(self, thread_id: str, *, most_bytes: int, most_files: int) -> list[ThreadFileRow]:
        """Forget files of a thread that has more; returns them, for removal.

        Versions of artifacts that newer ones have replaced go first, then the oldest. What belongs to a turn that has
        not ended stays, and what no turn has taken up yet.
        """
        ended = sa.exists().where(turns.c.id == table.c.turn_id, turns.c.state == TurnState.ENDED.value)
        its = _COLUMNS.add_columns(ended.label("ended")).where(table.c.thread_id == thread_id)

        def work(connection: sa.Connection) -> list[ThreadFileRow]:
            enter_any(connection, thread_id)
            rows = connection.execute(its.order_by(table.c.created_at, table.c.id)).all()
            gone = [_of(row) for row in _victims(rows, most_bytes, most_files)]
            for start in range(0, len(gone), _AT_ONCE):
                some = [row.id for row in gone[start : start + _AT_ONCE]]
                connection.execute(sa.delete(table).where(table.c.id.in_(some)))
            return gone

        return await self._database.write(work)


def _of(found: sa.Row[tuple[object, ...]]) -> ThreadFileRow:
    return ThreadFileRow(**{name: found._mapping[name] for name in ThreadFileRow.__dataclass_fields__})


def _victims(
    rows: Sequence[sa.Row[tuple[object, ...]]], most_bytes: int, most_files: int
) -> list[sa.Row[tuple[object, ...]]]:
    """Return those of a thread's files, oldest first, that must go."""
    newest = {row.name: row.id for row in rows if row.kind == FileKind.ARTIFACT}
    free = [row for row in rows if row.ended]
    free.sort(key=lambda row: newest.get(row.name) == row.id or row.kind != FileKind.ARTIFACT)  # stable: by age else
    size, count = sum(row.size for row in rows), len(rows)
    gone: list[sa.Row[tuple[object, ...]]] = []
    for row in free:
        if size <= most_bytes and count <= most_files:
            break
        gone.append(row)
        size, count = size - row.size, count - 1
    return gone
