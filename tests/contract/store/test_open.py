"""Opening a store: migrations, wrong URLs, databases that are away, and what is closed."""

import asyncio
import gc
import multiprocessing
import sqlite3
import stat
import sys
import threading
from functools import partial
from pathlib import Path

import alembic.command
import alembic.config
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from contract.store.rows import NODE, NOW, a_row
from holdfast.errors import ConfigError, DiskFull, HoldfastError, StaleRow, Unavailable
from holdfast.store import Store
from holdfast.store.database import migrate as migrate_module
from holdfast.store.database.database import database_for
from holdfast.store.database.engine import parse_url
from holdfast.store.tables import metadata
from support.daemons.store_child import open_and_insert
from support.servers.postgres import Postgres
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def test_an_empty_database_gets_exactly_the_tables(store: Store) -> None:
    assert await store._database.read(_differences) == []


async def test_the_comparison_sees_a_difference(store: Store) -> None:
    """The test above can fail: each of these is a way in which a migration could miss the tables."""
    for statement in ["DROP INDEX ix_sessions_status_id", "ALTER TABLE sessions ADD COLUMN extra TEXT"]:
        await store._database.write(partial(_execute, statement))
    assert len(await store._database.read(_differences)) == 2


def _execute(statement: str, connection: sa.Connection) -> None:
    connection.execute(sa.text(statement))


def _scalar(statement: str, connection: sa.Connection) -> object:
    return connection.scalar(sa.text(statement))


def _differences(connection: sa.Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


async def test_the_constraints_have_the_names_of_the_tables(store: Store) -> None:
    """``compare_metadata`` does not look at CHECKs, so we do."""

    def names(connection: sa.Connection) -> set[str | None]:
        inspector = sa.inspect(connection)
        return {check["name"] for name in metadata.tables for check in inspector.get_check_constraints(name)}

    assert await store._database.read(names) == {
        "ck_event_log_one_row",
        "ck_keys_scope",
        "ck_messages_mode",
        "ck_messages_status",
        "ck_sessions_status",
        "ck_snapshots_kind",
        "ck_snapshots_status",
        "ck_thread_files_kind",
        "ck_threads_sleep_state",
        "ck_turns_state",
        "ck_workspaces_status",
    }


def test_there_is_one_line_of_revisions() -> None:
    scripts = ScriptDirectory(str(migrate_module._SCRIPTS))
    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


async def test_opening_again_keeps_the_rows(url: str) -> None:
    for _ in range(2):
        store = await Store.open(url)
        await store.sessions.insert(a_row(idempotency_key="k"), max_live=None)
        await store.close()
    store = await Store.open(url)
    assert await store.sessions.get("ses_0001") == a_row(idempotency_key="k")
    await store.close()


async def test_many_open_an_empty_database_at_once(url: str) -> None:
    stores = await asyncio.gather(*(Store.open(url) for _ in range(8)))
    await asyncio.gather(*(store.sessions.insert(a_row(n), max_live=None) for n, store in enumerate(stores)))
    assert len(await stores[0].sessions.by_status(["active"], node=NODE)) == 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_many_processes_open_an_empty_database_at_once(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=open_and_insert, args=(url, a_row(n))) for n in range(6)]
    for child in children:
        child.start()
    for child in children:
        await asyncio.to_thread(child.join, 60)
    assert [child.exitcode for child in children] == [0] * 6
    store = await Store.open(url)
    assert len(await store.sessions.by_status(["active"], node=NODE)) == 6
    await store.close()


async def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    store = await Store.open(url)
    await store._database.write(partial(_execute, "UPDATE alembic_version SET version_num = '9999'"))
    await store.close()
    with pytest.raises(ConfigError, match=r"newer version \(schema 9999.*upgrade Holdfast"):
        await Store.open(url)


async def test_a_migration_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = alembic.command.upgrade

    def upgrade_then_die(config: alembic.config.Config, revision: str) -> None:
        real(config, revision)
        raise HoldfastError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(alembic.command, "upgrade", upgrade_then_die)
        with pytest.raises(HoldfastError, match="power cut"):
            await Store.open(url)
    database = database_for(parse_url(url))
    assert await database.read(lambda connection: sa.inspect(connection).get_table_names()) == []
    await database.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://u:hunter2@h/d",
        "postgresql+psycopg://u:hunter2@h/d",
        "postgresql://u:hunter2@h",
        "postgresql://u:hun:ter2@h:port/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////tmp/x.db?mode=ro",
        "sqlite:////nowhere/at/all/x.db",
        "sqlite:////tmp",
        "postgresql://u:hunter2@localhost/d?nonsense=1",
    ],
)
async def test_a_wrong_url_is_a_config_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="database_url") as caught:
        await Store.open(url)
    assert "ter2" not in str(caught.value)


async def test_a_file_that_is_no_database_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is not a database, but it is long enough to look at" * 100)
    with pytest.raises(ConfigError, match=r"x\.db"):
        await Store.open(f"sqlite:///{tmp_path}/x.db")


async def test_postgres_that_is_away_is_unavailable_without_the_password() -> None:
    with pytest.raises(Unavailable, match=r"Postgres at 127\.0\.0\.1:1/holdfast") as caught:
        await Store.open("postgresql://user:hunter2@127.0.0.1:1/holdfast")
    assert "hunter2" not in str(caught.value)


async def test_postgres_without_that_database_is_a_config_error(postgres: Postgres) -> None:
    with pytest.raises(ConfigError, match=r"database_url: .*no_such_database"):
        await Store.open(postgres.url("no_such_database"))


async def test_postgres_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"holdfast\[postgres\]"):
        await Store.open("postgresql://u:p@localhost/d")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_sslmode_is_understood(scheme: str) -> None:
    url = parse_url(f"{scheme}://u:p@h/d?sslmode=verify-full")
    assert (url.drivername, dict(url.query)) == ("postgresql+asyncpg", {"ssl": "verify-full"})


async def test_the_sqlite_file_is_private_and_set_up(tmp_path: Path) -> None:
    store = await Store.open(f"sqlite:///{tmp_path}/50%25 done.db")
    await store.sessions.insert(a_row(), max_live=None)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert "50% done.db" in modes
    pragmas = {
        name: await store._database.read(partial(_scalar, f"PRAGMA {name}"))
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 15000}
    await store.close()


async def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    store = await Store.open(f"sqlite:///{tmp_path}/x.db")

    def insert_much(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 20")
        connection.exec_driver_sql("CREATE TABLE much AS SELECT randomblob(1000000)")

    with pytest.raises(DiskFull):
        await store._database.write(insert_much)
    await store.close()


async def test_a_lock_held_by_another_process_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.database.database.STATEMENT_TIMEOUT", 0.05)
    store = await Store.open(f"sqlite:///{tmp_path}/x.db")
    with sqlite3.connect(tmp_path / "x.db", isolation_level=None) as foreigner:
        foreigner.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.sessions.insert(a_row(), max_live=None)
        assert await store.sessions.by_status(["active"], node=NODE) == []  # readers do not wait
        foreigner.execute("ROLLBACK")
    foreigner.close()
    await store.sessions.insert(a_row(), max_live=None)
    await store.close()


async def test_postgres_that_goes_away_is_unavailable_and_comes_back(postgres: Postgres) -> None:
    postgres.create("restarted")
    store = await Store.open(postgres.url("restarted"))
    await store.sessions.insert(a_row(), max_live=None)
    postgres.stop()
    try:
        with pytest.raises(Unavailable):
            await store.ping()
        with pytest.raises(Unavailable):
            await store.sessions.touch([("ses_0001", NOW, NOW, "/")])
    finally:
        postgres.start()
    assert (await store.sessions.get("ses_0001")).id == "ses_0001"
    await store.close()
    postgres.drop("restarted")


async def test_a_connection_lost_in_the_middle_is_unavailable(postgres: Postgres) -> None:
    postgres.create("severed")
    store = await Store.open(postgres.url("severed"))

    def sever(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with pytest.raises(Unavailable):
        await store._database.write(sever)
    await store.ping()
    await store.close()
    postgres.drop("severed")


async def test_ping_answers_until_the_store_is_closed(store: Store) -> None:
    await store.ping()
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await store.ping()


async def test_close_waits_for_what_is_under_way(url: str) -> None:
    store = await Store.open(url)
    inserts = [asyncio.create_task(store.sessions.insert(a_row(n), max_live=None)) for n in range(10)]
    await linger(0.01)
    await store.close()
    done = [task.exception() is None for task in inserts if await asyncio.wait([task])]
    store = await Store.open(url)
    assert len(await store.sessions.by_status(["active"], node=NODE)) == sum(done)
    await store.close()


async def test_who_is_cancelled_twice_leaves_no_error_behind(tmp_path: Path) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    store = await Store.open(f"sqlite:///{tmp_path / 'x.db'}")
    begun, go_on = threading.Event(), threading.Event()

    def work(_connection: sa.Connection) -> None:
        begun.set()
        go_on.wait(30)
        raise StaleRow("lost")

    caller = asyncio.create_task(store._database.write(work))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
