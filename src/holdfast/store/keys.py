"""Rows of keys. The key itself is never here: only its hash, from which nobody gets it back."""

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from holdfast.errors import Conflict, KeyNotFound
from holdfast.records.keys import KeyRow
from holdfast.store.database.database import Database
from holdfast.store.tables import keys as table


class KeyStore:
    """The keys table. A row never changes but for ``last_used_at``. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: KeyRow) -> None:
        """Add a key. Raises ``Conflict`` if the name is taken."""

        def work(connection: sa.Connection) -> None:
            if connection.scalar(sa.select(table.c.id).where(table.c.name == row.name)) is not None:
                raise Conflict(f"there is a key {row.name} already; take another name, or remove that one first")
            connection.execute(sa.insert(table).values(asdict(row)))

        await self._database.write(work)

    async def all(self) -> list[KeyRow]:
        """Return every key, ordered by name."""
        query = sa.select(table).order_by(table.c.name)
        return await self._database.rows(query, KeyRow)

    async def remove(self, name: str) -> KeyRow:
        """Remove a key and return its row; raises ``KeyNotFound``."""
        delete = sa.delete(table).where(table.c.name == name).returning(table)

        def work(connection: sa.Connection) -> KeyRow:
            found = connection.execute(delete).one_or_none()
            if found is None:
                raise KeyNotFound(f"there is no key {name}; `holdfast key ls` shows those there are")
            return KeyRow(**found._mapping)

        return await self._database.write(work)

    async def note_use(self, moments: Sequence[tuple[str, float]]) -> None:
        """Note (id, last_used_at) for many keys in one transaction. No moment ever moves backwards."""
        if not moments:
            return
        # In one order everywhere, so that two daemons with the same rows cannot deadlock.
        batch = [{"b_id": id, "b_used": moment} for id, moment in sorted(moments)]
        await self._database.write(lambda connection: connection.execute(_USED, batch))


def _used() -> sa.Update:
    moment = sa.bindparam("b_used", type_=sa.Double)
    older = sa.or_(table.c.last_used_at.is_(None), table.c.last_used_at < moment)
    return sa.update(table).where(table.c.id == sa.bindparam("b_id"), older).values(last_used_at=moment)


_USED = _used()
