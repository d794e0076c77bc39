"""A database for daemons that share one."""

import uuid
from collections.abc import Iterator

import pytest

from support.servers.postgres import MISSING, Postgres, running_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    postgres.create(name)
    yield postgres.url(name)
    postgres.drop(name)
