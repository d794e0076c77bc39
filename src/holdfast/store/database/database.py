"""One unit of work against the database: a connection, a transaction, our errors, and a clean end if cancelled.

Work is a plain function of a SQLAlchemy connection, the same for both databases. On SQLite it runs in a thread, which
costs one hop per unit where an async driver costs one per cursor call; on Postgres it runs in the event loop, on
SQLAlchemy's bridge to asyncpg.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa
from sqlalchemy.engine import URL

from holdfast.errors import DiskFull, Unavailable
from holdfast.store.database.engine import is_sqlite, longest_pause, place, postgres_engine, sqlite_engine
from holdfast.store.database.foreign import translated
from holdfast.store.database.reserve import Reserve, may_spend
from holdfast.store.database.stalled import StandingStill

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[sa.Connection], T]

STATEMENT_TIMEOUT = 15.0
_READERS = 4
_GRACE = 5.0
"""How long a cancelled caller waits for its transaction to settle before it is torn down."""


class Database(ABC):
    """Runs work in transactions. ``read`` is for a single SELECT; everything else is a ``write``.

    Each unit runs in a task of its own, so a cancelled caller does not tear it apart: the transaction commits or
    rolls back as a whole, and only then the cancellation goes on. Who is cancelled and then looks at the row sees
    what is really there, not what a dying connection may still write.
    """

    def __init__(self, url: URL) -> None:
        self._place = place(url)
        self._running: set[asyncio.Task[Any]] = set()
        self.reserve: Reserve | None = None
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        return await self._settle(self._run_translated(self._read, work))

    async def rows(self, query: sa.Select[Any], make: Callable[..., R]) -> list[R]:
        """Read what the query finds, and make a record of each row from its columns."""
        return await self.read(lambda connection: [make(**found._mapping) for found in connection.execute(query)])

    async def row(self, query: sa.Select[Any], make: Callable[..., R]) -> R | None:
        """Read the one row that the query can find; None if it finds none."""
        found = await self.rows(query, make)
        return found[0] if found else None

    async def write(self, work: Work[T]) -> T:
        return await self._settle(self._write_somehow(work))

    async def _write_somehow(self, work: Work[T]) -> T:
        """Write; where the disk is full, use some of the reserve, for callers that may."""
        while True:
            try:
                return await self._run_translated(self._write, work)
            except DiskFull:
                if self.reserve is None or not may_spend() or not await asyncio.to_thread(self.reserve.give):
                    raise

    async def close(self) -> None:
        """Let what is under way end, then let go of every connection. Later calls raise ``Unavailable``."""
        if self._closed:
            return
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=_GRACE)
        await self._dispose()

    @abstractmethod
    async def _read(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _write(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _dispose(self) -> None: ...

    async def _run_translated(self, run: Callable[[Work[T]], Coroutine[None, None, T]], work: Work[T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        with translated(self._place):
            return await run(work)

    async def _settle(self, unit: Coroutine[None, None, T]) -> T:
        task = asyncio.create_task(unit)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_seen)
            await _let_end(task)
            raise


class SqliteDatabase(Database):
    def __init__(self, url: URL) -> None:
        super().__init__(url)
        self._engine = sqlite_engine(url, timeout=STATEMENT_TIMEOUT)
        # Readers never wait for the writer, so neither may the writer keep their threads busy. One thread for all
        # writes is also a fair queue: where SQLite's own lock makes writers wait, they poll.
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="store-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-write")

    async def _read(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_in_thread, work)

    async def _write(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write_in_thread, work)

    async def _dispose(self) -> None:
        # Closing the last connection copies the journal into the database, so it does not belong into the loop.
        await asyncio.get_running_loop().run_in_executor(self._writer, self._engine.dispose)
        self._readers.shutdown(wait=False)
        self._writer.shutdown(wait=False)

    def _read_in_thread(self, work: Work[T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    def _write_in_thread(self, work: Work[T]) -> T:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            connection.commit()
            return result


class PostgresDatabase(Database):
    def __init__(self, url: URL) -> None:
        super().__init__(url)
        # A single SELECT needs no BEGIN and COMMIT around it, which are round trips.
        self._engine = postgres_engine(url, timeout=STATEMENT_TIMEOUT, autocommit=True)
        self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._standing_still = StandingStill(url, seconds=longest_pause(STATEMENT_TIMEOUT))

    async def _read(self, work: Work[T]) -> T:
        async with self._engine.connect() as connection:
            return await connection.run_sync(work)

    async def _write(self, work: Work[T]) -> T:
        with self._standing_still.waiting():
            async with self._writer.begin() as connection:
                return await connection.run_sync(work)

    async def _dispose(self) -> None:
        await self._standing_still.close()
        await self._engine.dispose()


def database_for(url: URL) -> Database:
    """Return the database behind a URL from ``parse_url``. Connects when it is first used."""
    return SqliteDatabase(url) if is_sqlite(url) else PostgresDatabase(url)


async def _let_end(task: asyncio.Task[T]) -> None:
    """Wait for the unit of a cancelled caller; if the database hangs, cancel the unit too."""
    with anyio.move_on_after(_GRACE, shield=True):
        await asyncio.wait([task])
    if not task.done():
        task.cancel()


def _seen(task: "asyncio.Task[Any]") -> None:
    """Retrieve the error, so that asyncio does not complain: the only caller that waited was cancelled."""
    if not task.cancelled():
        task.exception()
