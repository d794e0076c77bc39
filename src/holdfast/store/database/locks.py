"""Postgres advisory locks, held until the transaction ends. SQLite has one writer at a time.

A lock is two numbers: what it is for, and which one. Two rows that share a number only wait a little for each other.
"""

import zlib
from typing import Final

import sqlalchemy as sa

_HOLDFAST: Final = 0x486F6C00
"""Keeps us apart from other programs in the same database."""

MIGRATE: Final = _HOLDFAST + 1
INSERT: Final = _HOLDFAST + 2
"""Also held by whoever takes away what an insert counts on: a snapshot, a workspace."""
LEASE: Final = _HOLDFAST + 3
THREAD: Final = _HOLDFAST + 6
NODE: Final = _HOLDFAST + 7
BUDGET: Final = _HOLDFAST + 8
TUNNELS: Final = _HOLDFAST + 9


def hold(connection: sa.Connection, what: int, which: str = "") -> None:
    """Take the lock, waiting for whoever has it. On SQLite the write transaction itself is that lock."""
    if connection.dialect.name == "postgresql":
        number = zlib.crc32(which.encode()) - 2**31  # a signed 32-bit number, as Postgres wants it
        lock = sa.func.pg_advisory_xact_lock(sa.literal(what, sa.Integer), sa.literal(number, sa.Integer))
        connection.execute(sa.select(lock))
