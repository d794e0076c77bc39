"""Calls to models, as they are billed: added one by one, summed up by turn, thread, owner, model and day."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import sqlalchemy as sa

from holdfast.records.usage import Run, UsageBy, UsageLine, UsageRow, UsageSum
from holdfast.store.database.database import Database
from holdfast.store.threads.guard import clock
from holdfast.store.usage_tables import SUMS, budget_holds, open_calls, usage_sum
from holdfast.store.usage_tables import usage as table

_KNOWN = sa.select(table).where(table.c.id == sa.bindparam("known"))
_ADD = sa.insert(table)
_REMOVE = sa.delete(table).where(table.c.id == sa.bindparam("removed"))
_RELEASE = sa.delete(budget_holds).where(budget_holds.c.id == sa.bindparam("released"))
_CLOSE = sa.delete(open_calls).where(open_calls.c.id == sa.bindparam("closed"))
_COUNT = sa.text(
    "INSERT INTO usage_totals (whose, month, cost_usd) VALUES (:whose, :month, :cost_usd)"
    " ON CONFLICT (whose, month) DO UPDATE SET cost_usd = usage_totals.cost_usd + excluded.cost_usd"
)
_SPENT = sa.text(
    "SELECT whose, month, cost_usd FROM usage_totals"
    " WHERE (whose = :thread AND month = '') OR (whose = :owner AND month = :month)"
)


def totals(thread_id: str, owner: str, day: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the keys of the totals that a call on this day counts in."""
    return (f"thread:{thread_id}", ""), (f"owner:{owner}", day[:7])


def day_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


CUT = "the daemon was killed while the model was asked; this much was known"
"""The error of a call whose end nobody has seen."""


class UsageStore:
    """The bills. Rows are added, and changed in one case only: one that was written for a daemon that was thought to be
    dead gives way to what that daemon says. Raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: UsageRow, *, hold_id: str | None = None) -> bool:
        """Add a bill, once per id: who is not sure whether it was added adds it again. Returns whether it was new.

        What was held for it is released in the same transaction: money is never in both sums, and never in none.
        """

        def work(connection: sa.Connection) -> bool:
            connection.execute(_CLOSE, {"closed": row.id})
            if hold_id is not None:
                connection.execute(_RELEASE, {"released": hold_id})
            return bool(_add(connection, [row]))

        return await self._database.write(work)

    # -- calls under way -----------------------------------------------------------------------------------------------

    async def begin(self, row: UsageRow, *, run: Run) -> None:
        """Note that a call of this daemon is under way; ``add`` with the same id ends that, in one transaction."""

        def work(connection: sa.Connection) -> None:
            values = asdict(row) | {"node": run.node, "run": run.id, "noted_at": clock(connection)}
            connection.execute(sa.insert(open_calls).values(values))

        await self._database.write(work)

    async def advance(
        self, id: str, *, output_tokens: int, input_tokens: int, cost_usd: float | None, seconds: float
    ) -> None:
        """Note what a call has cost so far. One that has ended meanwhile is left alone."""
        values = {"output_tokens": output_tokens, "input_tokens": input_tokens, "cost_usd": cost_usd}

        def work(connection: sa.Connection) -> None:
            update = sa.update(open_calls).where(open_calls.c.id == id)
            connection.execute(update.values(values | {"seconds": seconds, "noted_at": clock(connection)}))

        await self._database.write(work)

    async def settle(self, *, run: Run, unheard_for: float) -> list[UsageRow]:
        """Bill what was under way when a daemon died: of earlier runs of this node; of other nodes, what nobody has
        noted anything of for so many seconds by the one clock. Returns the bills.

        No clock says that of this run's own calls: it would have jumped. Of other nodes' it can be wrong, too; then
        ``add`` puts it right.
        """

        def work(connection: sa.Connection) -> list[UsageRow]:
            unheard = open_calls.c.noted_at < clock(connection) - unheard_for
            over = sa.and_(open_calls.c.run != run.id, sa.or_(open_calls.c.node == run.node, unheard))
            rows = [
                _cut(found) for found in connection.execute(sa.delete(open_calls).where(over).returning(open_calls))
            ]
            return _add(connection, rows)

        return await self._database.write(work)

    # -- sums ----------------------------------------------------------------------------------------------------------

    async def spent(self, thread_id: str, owner: str, *, now: float) -> tuple[float, float]:
        """Return the US dollars spent by a thread in all, and by an owner in the calendar month (UTC) of ``now``."""
        of_thread, of_owner = totals(thread_id, owner, day_of(now))

        def work(connection: sa.Connection) -> tuple[float, float]:
            found = connection.execute(_SPENT, {"thread": of_thread[0], "owner": of_owner[0], "month": of_owner[1]})
            usd = {(whose, month): float(cost) for whose, month, cost in found}
            return usd.get(of_thread, 0.0), usd.get(of_owner, 0.0)

        return await self._database.read(work)

    async def of_turn(self, turn_id: str) -> UsageSum:
        return (await self._by(table.c.turn_id, [turn_id])).get(turn_id, UsageSum())

    async def of_threads(self, thread_ids: Collection[str]) -> Mapping[str, UsageSum]:
        """Return the sums of those threads that have made any calls."""
        return await self._by(table.c.thread_id, thread_ids) if thread_ids else {}

    async def _by(self, column: sa.Column[str], ids: Collection[str]) -> Mapping[str, UsageSum]:
        query = sa.select(column, *SUMS).where(column.in_(ids)).group_by(column)
        return await self._database.read(
            lambda connection: {id: usage_sum(*sums) for id, *sums in connection.execute(query)}
        )

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
        """Return at most ``limit`` lines: the newest days, or whatever has cost most.

        ``since`` and ``until`` are days, both included; ``owner`` None is everybody.
        """
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
        """Sum up all lines that a report of the same would have."""
        query = sa.select(*SUMS).where(*_which(owner, thread_key, since, until))
        return await self._database.read(lambda connection: usage_sum(*connection.execute(query).one()))


def _add(connection: sa.Connection, rows: Sequence[UsageRow]) -> list[UsageRow]:
    """Add the rows that are new, and return those."""
    new = []
    amounts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        found = connection.execute(_KNOWN, {"known": row.id}).one_or_none()
        known = UsageRow(**found._mapping) if found is not None else None
        if known is not None and (known.error != CUT or row.error == CUT):
            continue
        if known is None:
            new.append(row)
        else:
            connection.execute(_REMOVE, {"removed": known.id})
            _count(amounts, known, -1)
        connection.execute(_ADD, asdict(row))
        _count(amounts, row)
    for whose, month in sorted(amounts, reverse=True):  # always in this order: nobody waits for who waits for them
        connection.execute(_COUNT, {"whose": whose, "month": month, "cost_usd": amounts[whose, month]})
    return new


def _count(amounts: defaultdict[tuple[str, str], float], row: UsageRow, times: int = 1) -> None:
    for key in totals(row.thread_id, row.owner, row.day) if row.cost_usd else ():
        amounts[key] += times * (row.cost_usd or 0.0)


def _cut(found: sa.Row[tuple[object, ...]]) -> UsageRow:
    known = {name: found._mapping[name] for name in UsageRow.__dataclass_fields__}
    return UsageRow(**(known | {"error": CUT}))


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
