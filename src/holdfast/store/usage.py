"""Calls to models, as they are billed: added one by one, summed up by turn, thread, owner, model and day."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum

import sqlalchemy as sa

from holdfast.store.database import Database
from holdfast.store.usage_rows import SUMS, UsageRow, UsageSum, usage_sum
from holdfast.store.usage_rows import usage as table

_KNOWN = sa.select(table.c.id).where(table.c.id == sa.bindparam("known"))
_ADD = sa.insert(table)
_COST = sa.func.coalesce(sa.func.sum(table.c.cost_usd), 0.0)
_IN_MONTH = (table.c.day >= sa.bindparam("first"), table.c.day <= sa.bindparam("last"))
_SPENT = sa.select(
    sa.select(_COST).where(table.c.thread_id == sa.bindparam("thread")).scalar_subquery(),
    sa.select(_COST).where(table.c.owner == sa.bindparam("its_owner"), *_IN_MONTH).scalar_subquery(),
)


class UsageBy(StrEnum):
    """What a report has one line for."""

    THREAD = "thread"
    MODEL = "model"
    DAY = "day"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class UsageLine:
    """One line of a report. ``what`` is a thread's key, a model's id, a day or an owner."""

    what: str
    owner: str | None
    """Of a thread: its key alone does not name it."""
    sum: UsageSum


def day_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


class UsageStore:
    """The bills. Rows are added and never changed. Raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: UsageRow) -> bool:
        """Once per id: who is not sure whether it was added adds it again. Whether it was new."""

        def work(connection: sa.Connection) -> bool:
            if connection.scalar(_KNOWN, {"known": row.id}) is not None:
                return False
            connection.execute(_ADD, asdict(row))
            return True

        return await self._database.write(work)

    async def spent(self, thread_id: str, owner: str, *, now: float) -> tuple[float, float]:
        """In US dollars: by a thread in all, and by an owner in the calendar month (UTC) of ``now``."""
        month = day_of(now)[:7]
        asked = {"thread": thread_id, "its_owner": owner, "first": f"{month}-01", "last": f"{month}-31"}

        def work(connection: sa.Connection) -> tuple[float, float]:
            thread_usd, owner_usd = connection.execute(_SPENT, asked).one()
            return float(thread_usd), float(owner_usd)

        return await self._database.read(work)

    async def of_turn(self, turn_id: str) -> UsageSum:
        return (await self._by(table.c.turn_id, [turn_id])).get(turn_id, UsageSum())

    async def of_threads(self, thread_ids: Collection[str]) -> Mapping[str, UsageSum]:
        """Those that have made any calls."""
        return await self._by(table.c.thread_id, thread_ids) if thread_ids else {}

    async def _by(self, column: sa.Column[str], ids: Collection[str]) -> Mapping[str, UsageSum]:
        query = sa.select(column, *SUMS).where(column.in_(ids)).group_by(column)

        def work(connection: sa.Connection) -> Mapping[str, UsageSum]:
            return {id: usage_sum(*sums) for id, *sums in connection.execute(query)}

        return await self._database.read(work)

    async def report(
        self,
        by: UsageBy,
        *,
        limit: int,
        owner: str | None = None,
        thread_key: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Sequence[UsageLine]:
        """At most ``limit`` lines: the newest days, or whatever has cost most. ``since`` and ``until`` are days, both
        included; ``owner`` None is everybody."""
        groups, what, whose = _GROUPS[by]
        query = sa.select(what, whose, *SUMS).where(*_which(owner, thread_key, since, until)).group_by(*groups)
        order = (what.desc(),) if by is UsageBy.DAY else (SUMS[-1].desc(), SUMS[0].desc(), what)
        ordered = query.order_by(*order).limit(limit)

        def work(connection: sa.Connection) -> list[UsageLine]:
            return [UsageLine(name, of, usage_sum(*sums)) for name, of, *sums in connection.execute(ordered)]

        return await self._database.read(work)

    async def total(
        self,
        *,
        owner: str | None = None,
        thread_key: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> UsageSum:
        """Of all lines that a report of the same would have."""
        query = sa.select(*SUMS).where(*_which(owner, thread_key, since, until))
        return await self._database.read(lambda connection: usage_sum(*connection.execute(query).one()))


_MODEL = table.c.provider + "/" + table.c.model
_NOBODY = sa.null()
_GROUPS: Mapping[
    UsageBy, tuple[Sequence[sa.ColumnElement[str]], sa.ColumnElement[str], sa.ColumnElement[str] | sa.Null]
] = {
    UsageBy.THREAD: ((table.c.owner, table.c.thread_key), table.c.thread_key, table.c.owner),
    UsageBy.MODEL: ((table.c.provider, table.c.model), _MODEL, _NOBODY),
    UsageBy.DAY: ((table.c.day,), table.c.day, _NOBODY),
    UsageBy.OWNER: ((table.c.owner,), table.c.owner, _NOBODY),
}


def _which(
    owner: str | None, thread_key: str | None, since: str | None, until: str | None
) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if owner is not None:
        conditions.append(table.c.owner == owner)
    if thread_key is not None:
        conditions.append(table.c.thread_key == thread_key)
    if since is not None:
        conditions.append(table.c.day >= since)
    if until is not None:
        conditions.append(table.c.day <= until)
    return conditions
