"""Fixtures that every suite uses."""

from collections.abc import Iterator
from unittest import SkipTest

import pytest

from support.dockerd import DockerSocket, docker_daemon, unusable_dockerd


@pytest.fixture
def anyio_backend() -> str:
    """Holdfast runs on asyncio; without this, anyio would run each test on trio too."""
    return "asyncio"


@pytest.fixture(scope="session")
def docker() -> Iterator[DockerSocket]:
    """A Docker daemon for all tests that need one."""
    reason = unusable_dockerd()
    if reason:
        raise SkipTest(reason)  # one line for all tests, unlike pytest.skip
    with docker_daemon() as daemon:
        yield daemon
