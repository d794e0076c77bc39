"""From ``database_url`` to an engine: which URLs we take, and how each database is set up."""

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from holdfast.errors import ConfigError

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+aiosqlite": "sqlite+pysqlite",  # people copy this one from elsewhere
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_EXAMPLES = "use sqlite:////var/lib/holdfast/holdfast.db or postgresql://user:password@host:5432/holdfast"
APPLICATION = "holdfast"
"""What connections of ours are called at the server."""
_PAUSES = 5
"""Several connections of one that stands still may wait for the same lock, and hold it one after the other."""
_CONNECT_TIMEOUT = 10.0
_SQLITE_CONNECTIONS = 8  # more than there are threads that use them
_OLDEST_SQLITE = (3, 35)  # the first with RETURNING


def parse_url(text: str) -> URL:
    """Return the URL with our driver. Raises ``ConfigError``, which never quotes the URL: it may hold a password."""
    try:
        url = sa.make_url(text)
    except (SQLAlchemyError, ValueError):
        raise ConfigError(
            f"database_url is not a URL: {_EXAMPLES}; write special characters of the password as %XX"
        ) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise ConfigError(f"database_url names the unknown database {url.drivername!r}: {_EXAMPLES}")
    url = url.set(drivername=driver)
    return _checked_sqlite(url) if is_sqlite(url) else _checked_postgres(url)


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def place(url: URL) -> str:
    """Say where the database is, in words for a message; without user and password."""
    if is_sqlite(url):
        return f"SQLite at {url.database}"
    host = url.host or url.query.get("host", "localhost")
    return f"Postgres at {host}:{url.port or url.query.get('port', 5432)}/{url.database}"


def _checked_sqlite(url: URL) -> URL:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise ConfigError(f"this Python has SQLite {sqlite3.sqlite_version}; Holdfast needs 3.35 or newer")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError("database_url names no file, and sessions must outlive the daemon: " + _EXAMPLES)
    if url.query:
        raise ConfigError(f"database_url: SQLite takes no options, so remove {'?' + '&'.join(sorted(url.query))}")
    return url


def _checked_postgres(url: URL) -> URL:
    if not url.database:
        raise ConfigError(f"database_url names no database: {_EXAMPLES}")
    # libpq, and with it every hosting service, says sslmode; asyncpg takes the same words as ssl.
    sslmode = url.query.get("sslmode")
    if isinstance(sslmode, str):
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": sslmode})
    return url


def sqlite_engine(url: URL, *, timeout: float) -> sa.Engine:
    """Make an engine for use in threads. ``timeout`` bounds the wait for a lock that another process holds.

    The driver begins no transaction by itself. A reader runs one statement, which is its own transaction. A writer
    says BEGIN IMMEDIATE before it reads: where two readers both want to become the writer, SQLite fails at once.
    """
    _create_private(Path(url.database or ""))
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        pool_size=_SQLITE_CONNECTIONS,
        max_overflow=0,
        pool_timeout=timeout,
        connect_args={"timeout": timeout, "isolation_level": None},
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def postgres_engine(url: URL, *, timeout: float, autocommit: bool = False) -> AsyncEngine:
    """Make an engine that connects to nothing yet. ``timeout`` bounds each statement, waiting for locks included.

    ``autocommit``: who wants a transaction says so, by an isolation level. Whether a connection in the pool is alive
    takes one round trip then, and not three: SQLAlchemy's ping begins a transaction otherwise.

    A part of it bounds the pauses inside a transaction, which the server ends then: a daemon that stands still
    (SIGSTOP, a machine that is asleep) would hold its locks on rows that others wait for. → standing_still.py
    """
    try:
        engine = create_async_engine(
            url,
            hide_parameters=True,
            pool_size=10,
            max_overflow=10,
            pool_timeout=timeout,
            isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
            pool_pre_ping=True,  # a restarted server costs nobody an error
            connect_args={
                "timeout": _CONNECT_TIMEOUT,
                "command_timeout": timeout,
                "server_settings": {"application_name": APPLICATION},
            },
        )
    except ImportError as error:
        raise ConfigError("database_url names Postgres; install it with: pip install 'holdfast[postgres]'") from error

    def limit_pauses(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = {int(longest_pause(timeout) * 1000)}")
        cursor.close()
        connection.commit()  # a rollback would undo it

    sa.event.listen(engine.sync_engine, "connect", limit_pauses)
    return engine


def longest_pause(timeout: float) -> float:
    """Return how long a transaction may stand still, in seconds, where statements may take so long."""
    return timeout / _PAUSES


def _create_private(path: Path) -> None:
    """Make the file readable by us alone (its journals inherit that), and find out now if it cannot be written."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(
            f"database_url: cannot open {path} for writing ({error.strerror}); its directory must exist and be ours"
        ) from error


def _set_pragmas(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")  # with WAL: no corruption; a power cut may lose the last commits
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
