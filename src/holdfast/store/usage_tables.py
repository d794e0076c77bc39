"""The tables of what calls to models have cost, and how their rows are summed up."""

import sqlalchemy as sa

from holdfast.records.usage import UsageSum
from holdfast.store.tables import ID_TEXT, ForeignText, metadata

usage = sa.Table(
    "usage",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("thread_id", ID_TEXT, nullable=False),
    sa.Column("thread_key", ID_TEXT, nullable=False),
    sa.Column("owner", ID_TEXT, nullable=False),
    sa.Column("channel", ID_TEXT, nullable=False),
    sa.Column("turn_id", ID_TEXT),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("status", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cost_usd", sa.Double),
    sa.Column("first_byte_seconds", sa.Double),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("error", ForeignText),
    sa.Column("day", ID_TEXT, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Index(None, "turn_id"),
    sa.Index(None, "thread_id"),  # of_threads
    sa.Index(None, "owner", "day"),  # reports of an owner
    sa.Index(None, "owner", "thread_key", "day"),  # reports of a thread
    sa.Index(None, "day"),  # reports of all
)

usage_totals = sa.Table(
    "usage_totals",
    metadata,
    sa.Column("whose", ID_TEXT, nullable=False),  # thread:ID, or owner:NAME
    sa.Column("month", ID_TEXT, nullable=False),  # of an owner, such as 2026-02; of a thread, it is empty
    sa.Column("cost_usd", sa.Double, nullable=False),
    sa.PrimaryKeyConstraint("whose", "month"),
)
"""What the rows of ``usage`` cost, kept with each that is added: asked for before each call, where sums are slow."""

open_calls = sa.Table(
    "open_calls",
    metadata,
    *(sa.Column(column.name, column.type, nullable=column.nullable) for column in usage.columns if column.name != "id"),
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("node", ID_TEXT, nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False),
    sa.Column("run", ID_TEXT, nullable=False, server_default=sa.text("''")),
)
"""Calls under way, with what they have cost so far: what is billed of them if their daemon is killed."""

budget_holds = sa.Table(
    "budget_holds",
    metadata,
    sa.Column("id", ID_TEXT, primary_key=True),
    sa.Column("thread_id", ID_TEXT, nullable=False),
    sa.Column("owner", ID_TEXT, nullable=False),
    sa.Column("usd", sa.Double, nullable=False),
    sa.Column("node", ID_TEXT, nullable=False),
    sa.Column("run", ID_TEXT, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
    sa.Index(None, "thread_id"),
    sa.Index(None, "owner"),
)
"""Money that calls under way may still cost. A hold counts until it is released or its time is over; one of the run
that asks counts in any case. A run is one life of a daemon: a clock that jumps does not say whether it is over."""


SUMS = (
    sa.func.count(usage.c.id),
    sa.func.coalesce(sa.func.sum(usage.c.input_tokens), 0),
    sa.func.coalesce(sa.func.sum(usage.c.output_tokens), 0),
    sa.func.coalesce(sa.func.sum(usage.c.cached_tokens), 0),
    sa.func.coalesce(sa.func.sum(usage.c.cost_usd), 0.0),
)


def usage_sum(calls: int, given: int, taken: int, cached: int, cost: float) -> UsageSum:
    """Build the record from the values of ``SUMS``. Postgres sums whole numbers into decimals."""
    return UsageSum(calls, int(given), int(taken), int(cached), float(cost))


def of_turn(connection: sa.Connection, turn_id: str) -> UsageSum:
    """Read, inside a transaction, what a turn has cost so far."""
    return usage_sum(*connection.execute(sa.select(*SUMS).where(usage.c.turn_id == turn_id)).one())
