"""Brings a database to the schema of this version; safe when several daemons start at once.

The whole upgrade is one transaction that first takes a lock: ``BEGIN IMMEDIATE`` on SQLite, an advisory lock on
Postgres. Who comes second waits, then finds nothing to do. A crash half-way leaves the old schema.
"""

import asyncio
import threading
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import URL

from holdfast.errors import ConfigError
from holdfast.store.database.engine import is_sqlite, place, postgres_engine, sqlite_engine
from holdfast.store.database.foreign import translated
from holdfast.store.database.locks import MIGRATE, hold

_SCRIPTS = Path(__file__).parents[1] / "migrations"
_TIMEOUT = 600.0
"""A big table takes its time, and so does waiting for another daemon that migrates it."""

# Alembic keeps the migration that runs in module globals, so one process does one at a time.
_one_at_a_time = threading.Lock()


async def migrate(url: URL) -> None:
    """Upgrade the database behind ``url``; raises ``ConfigError`` if a newer Holdfast has already been there.

    Works in a thread, because Alembic reads files and imports modules.
    """
    await asyncio.to_thread(_migrate_in_thread, url)


def _migrate_in_thread(url: URL) -> None:
    with _one_at_a_time, translated(place(url)):
        if is_sqlite(url):
            _migrate_sqlite(url)
        else:
            asyncio.run(_migrate_postgres(url))


def _migrate_sqlite(url: URL) -> None:
    engine = sqlite_engine(url, timeout=_TIMEOUT)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            _upgrade(connection)
            connection.commit()
    finally:
        engine.dispose()


async def _migrate_postgres(url: URL) -> None:
    engine = postgres_engine(url, timeout=_TIMEOUT)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def _upgrade(connection: sa.Connection) -> None:
    hold(connection, MIGRATE)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    _refuse_newer(current, scripts)
    if current != scripts.get_current_head():
        command.upgrade(config, "head")


def _refuse_newer(current: str | None, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        raise ConfigError(
            f"the database is of a newer version (schema {current}; this Holdfast knows {scripts.get_current_head()}): "
            "upgrade Holdfast, or point database_url at the backup from before the upgrade"
        )
