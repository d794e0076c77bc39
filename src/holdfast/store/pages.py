"""Pages that are bounded in bytes, too: a row may hold a million, and a page a thousand rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

T = TypeVar("T")

PAGE_BYTES = 4_000_000
"""Of the texts of one page's rows."""


class stored_bytes(sa.sql.functions.GenericFunction[int]):  # noqa: N801  # as SQL has it
    """The length of a text where it is stored: in bytes, or in SQLite in characters, which is the same for JSON."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(stored_bytes, "sqlite")
def _of_sqlite(element: stored_bytes, compiler: SQLCompiler, **more: Any) -> str:
    return f"length({compiler.process(element.clauses, **more)})"


@compiles(stored_bytes, "postgresql")
def _of_postgres(element: stored_bytes, compiler: SQLCompiler, **more: Any) -> str:
    """Postgres knows the bytes without unpacking the text, unlike its length."""
    return f"octet_length({compiler.process(element.clauses, **more)})"


Order = Callable[[sa.ColumnCollection[str, Any]], Sequence[sa.ColumnElement[Any]]]
"""How the rows of a page are ordered, given their columns."""


def weighed(query: sa.Select[tuple[object, ...]], text: sa.Column[Any], order: Order) -> sa.Subquery:
    """Select ``query``, each row with the bytes of ``text`` in those ``before`` it, and their number (``whole``).

    Who takes the rows with fewer bytes before them than a page may have gets at least one.
    """
    some = query.add_columns(stored_bytes(text).label("size")).order_by(*order(text.table.c)).subquery()
    before = sa.func.sum(some.c.size).over(order_by=order(some.c)) - some.c.size
    return sa.select(some, before.label("before"), sa.func.count().over().label("whole")).subquery()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    rows: list[T]
    more: bool
    """Whether there are others behind them that had no room."""


def read_page(
    connection: sa.Connection,
    query: sa.Select[tuple[object, ...]],
    text: sa.Column[Any],
    order: Order,
    *,
    limit: int,
    make: Callable[..., T],
) -> Page[T]:
    """Read the first ``limit`` rows; fewer if they are long: a page ends with the row that fills ``PAGE_BYTES``."""
    found = weighed(query.limit(limit + 1), text, order)
    some = sa.select(found).where(found.c.before < PAGE_BYTES).order_by(*order(found.c))
    rows = connection.execute(some).all()
    names = [column.name for column in text.table.c]
    made = [make(**{name: row._mapping[name] for name in names}) for row in rows[:limit]]
    return Page(made, bool(rows) and rows[0].whole > len(made))
