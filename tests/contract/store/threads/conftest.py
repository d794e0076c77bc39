"""Fixtures for the store of threads: each test finds its database empty, but it is made and migrated only once."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import sqlalchemy as sa

from holdfast.store import Store
from holdfast.store.database.database import database_for
from holdfast.store.database.engine import parse_url
from holdfast.store.database.migrate import migrate
from holdfast.store.tables import event_log, metadata
from support.servers.postgres import Postgres


@pytest.fixture(scope="session")
def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _migrated(f"sqlite:///{tmp_path_factory.mktemp('threads') / 'holdfast.db'}")


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> Iterator[str]:
    name = f"threads_{uuid.uuid4().hex}"
    postgres.create(name)
    yield _migrated(postgres.url(name))
    postgres.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
async def store(url: str, anyio_backend: str) -> AsyncIterator[Store]:
    opened = Store(database_for(parse_url(url)))
    await opened._database.write(_empty)
    yield opened
    await opened.close()


@pytest.fixture
async def other(url: str, store: Store) -> AsyncIterator[Store]:
    """A second daemon on the database of ``store``."""
    opened = Store(database_for(parse_url(url)))
    yield opened
    await opened.close()


def _migrated(url: str) -> str:
    asyncio.run(migrate(parse_url(url)))
    return url


def _empty(connection: sa.Connection) -> None:
    for table in metadata.tables.values():
        if table is not event_log:
            connection.execute(sa.delete(table))
