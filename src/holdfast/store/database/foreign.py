"""The seam: errors of SQLAlchemy, asyncpg and sqlite3 become ours here, once.

The databases' own codes decide, never their words. What is not listed is a bug of ours and says so.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from holdfast.errors import BadInput, ConfigError, Conflict, DiskFull, HoldfastError, Unavailable

_Code = int | str

_SQLITE: dict[_Code, type[HoldfastError]] = {
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: Conflict,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: Conflict,
    sqlite3.SQLITE_FULL: DiskFull,
    sqlite3.SQLITE_BUSY: Unavailable,
    sqlite3.SQLITE_LOCKED: Unavailable,
    sqlite3.SQLITE_IOERR: Unavailable,
    sqlite3.SQLITE_CANTOPEN: Unavailable,
    sqlite3.SQLITE_READONLY: Unavailable,
    sqlite3.SQLITE_NOTADB: ConfigError,
    sqlite3.SQLITE_TOOBIG: BadInput,
}

# SQLSTATE: the first two characters are a class. The longer key wins.
_POSTGRES: dict[_Code, type[HoldfastError]] = {
    "08": Unavailable,  # connection
    "22": BadInput,  # data
    "23505": Conflict,  # unique
    "25006": Unavailable,  # read-only: a standby, during a failover
    "28": ConfigError,  # user or password
    "3D000": ConfigError,  # no such database
    "3F000": ConfigError,  # no such schema
    "40": Unavailable,  # deadlock, serialization
    "42501": ConfigError,  # not permitted
    "53": Unavailable,  # too many connections, out of memory
    "53100": DiskFull,
    "55P03": Unavailable,  # lock not available
    "57": Unavailable,  # shutting down, starting, cancelled
    "58": Unavailable,  # I/O
}


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise our errors instead of the database's. ``place`` names the database in the message."""
    try:
        yield
    except HoldfastError:
        raise
    except DBAPIError as error:
        raise _from_database(error, place) from error
    except PoolTimeout as error:
        raise Unavailable(f"every connection to {place} is busy; try again") from error
    except SQLAlchemyError as error:
        raise HoldfastError(f"a bug in the store: {type(error).__name__}") from error
    except (UnicodeError, OverflowError) as error:
        raise BadInput(f"{place} cannot hold such a value: {error.__class__.__name__}") from error
    except TimeoutError as error:
        raise Unavailable(f"{place} did not answer in time") from error
    except OSError as error:
        raise Unavailable(f"cannot reach {place}: {error.strerror or type(error).__name__}") from error


def _from_database(error: DBAPIError, place: str) -> HoldfastError:
    kind = _kind(error.orig)
    if kind is not None:
        key = "database_url: " if kind is ConfigError else ""
        return kind(f"{key}{place}: {_first_line(error.orig)}")
    if error.connection_invalidated:
        return Unavailable(f"lost the connection to {place}; try again")
    return HoldfastError(f"{place} refused a statement: {_first_line(error.orig)}")


def _kind(cause: BaseException | None) -> type[HoldfastError] | None:
    sqlstate = getattr(cause, "sqlstate", None)
    if isinstance(sqlstate, str):
        return _POSTGRES.get(sqlstate) or _POSTGRES.get(sqlstate[:2])
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0)
        return _SQLITE.get(code) or _SQLITE.get(code & 0xFF)
    # asyncpg refuses an argument before it is sent: a number out of range, broken Unicode.
    return BadInput if isinstance(cause, Exception) and isinstance(cause.__cause__, ValueError) else None


def _first_line(cause: BaseException | None) -> str:
    """Return the database's message without the details, which may quote a row."""
    return str(cause).partition("\n")[0]
