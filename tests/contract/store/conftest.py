"""Fixtures of the store's suite: the same tests on SQLite and on Postgres, each on a database of its own."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.store import Store
from support.servers.postgres import MISSING, Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'holdfast.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = f"test_{uuid.uuid4().hex}"
    server.create(name)
    yield server.url(name)
    server.drop(name)


@pytest.fixture
async def store(url: str, anyio_backend: str) -> AsyncIterator[Store]:
    opened = await Store.open(url)
    yield opened
    await opened.close()
