"""Ends transactions of daemons that stand still in the middle of a statement: Postgres does not do it by itself.

It ends a transaction in which no statement comes (``idle_in_transaction_session_timeout``). But asyncpg sends a
statement that is new to a connection in two halves: it has it prepared, and executes it when that is answered. While
the server waits for the second half it does not count that time, and ``statement_timeout`` does not interrupt it. A
daemon that is stopped in between (SIGSTOP, a machine that is asleep) would hold its locks for as long as it is stopped.

So who waits for long looks whether it is for such a one. Locks of all daemons are seen by each: they use one role.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from holdfast.store.database.engine import APPLICATION, postgres_engine

log = structlog.get_logger(__name__)

_LOOK_TIMEOUT = 10.0
_END_THEM = sa.text(
    """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = :application
      AND state = 'active' AND wait_event = 'ClientRead'
      AND state_change < clock_timestamp() - make_interval(secs => :seconds)
      AND pid IN (
        SELECT unnest(pg_blocking_pids(waiting.pid)) FROM pg_stat_activity AS waiting
        WHERE waiting.datname = current_database() AND waiting.wait_event_type = 'Lock'
      )
    """
)


class StandingStill:
    """Looks after one database. ``seconds`` is how long others may stand still, and how long a wait is a long one."""

    def __init__(self, url: URL, *, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Look for stalled transactions while the code inside waits for long, which may be for a lock."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            timer = loop.call_later(self._seconds, look)
            if self._looking is None or self._looking.done():
                self._looking = loop.create_task(self._look())

        timer = loop.call_later(self._seconds, look)
        try:
            yield
        finally:
            timer.cancel()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> None:
        """End stalled transactions, on a connection of its own: those of the pool may all be waiting."""
        engine = postgres_engine(self._url, timeout=_LOOK_TIMEOUT, autocommit=True)
        try:
            async with engine.connect() as connection:
                found = await connection.execute(_END_THEM, {"application": APPLICATION, "seconds": self._seconds})
                ended = [row.pid for row in found]
            if ended:
                log.warning("store.standing_still.ended", pids=ended, meaning="others waited for what they had locked")
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            log.warning("store.standing_still.failed", error=str(error).partition("\n")[0], next="looked again")
        finally:
            await engine.dispose()
