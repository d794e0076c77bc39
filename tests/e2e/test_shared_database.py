"""Two real daemons on one Postgres, each with a root key of its own; and one that is older than the database."""

import asyncio
import shutil
import uuid
from collections.abc import Iterator

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from holdfast.errors import Unauthorized
from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.servers.postgres import MISSING, Postgres, running_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    postgres.create(name)
    yield postgres.url(name)
    postgres.drop(name)


def daemon_on(database: str, key: str) -> DaemonProcess:
    daemon = DaemonProcess(database_url=database, api_key=key, reap_interval_seconds=0.5, disk_limit_mb=32)
    daemon.key = key
    return daemon


def is_valid(daemon: DaemonProcess, key: str) -> bool:
    with SyncClient(daemon.url, key, retries=0) as client:
        try:
            client.list_sessions()
        except Unauthorized:
            return False
        return True


def test_each_has_its_root_key_and_both_know_the_other_keys(database: str) -> None:
    with daemon_on(database, "root-key-of-the-first") as one, daemon_on(database, "root-key-of-the-second") as two:
        assert [is_valid(one, two.key), is_valid(two, one.key)] == [False, False]
        with SyncClient(one.url, one.key) as first:
            ada = first.keys.add("ada", scope="use").key
            assert is_valid(one, ada)
            wait_for(lambda: is_valid(two, ada), "the other daemon knows the key")
            session = first.create_session()
            session.exec("echo kept > /workspace/file")
            two.restart()
            assert session.exec("cat /workspace/file").stdout == "kept\n", "the other one takes it for nobody's"
            first.keys.remove("ada")
            wait_for(lambda: not is_valid(two, ada), "the other daemon has heard that the key is gone")
            session.destroy()


def test_one_that_is_older_than_the_database(database: str) -> None:
    """It says so and ends; the newer one, which runs, goes on."""
    with daemon_on(database, "root-key-of-the-first") as newer, SyncClient(newer.url, newer.key) as client:
        asyncio.run(set_schema(database, "9999"))
        older = daemon_on(database, "root-key-of-the-second")
        older.start(wait=False)
        try:
            wait_for(lambda: "the database is of a newer version (schema 9999" in older.tail(), "it says why it ends")
        finally:
            older.stop()
            shutil.rmtree(older.state_dir)
        session = client.create_session()
        assert session.exec("echo still here").stdout == "still here\n"
        session.destroy()


async def set_schema(database: str, revision: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("UPDATE alembic_version SET version_num = $1", revision)
    finally:
        await connection.close()
