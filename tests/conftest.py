"""Fixtures that every suite uses."""

from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from support.dockerd import DockerSocket, docker_daemon, unusable_dockerd

HERE = Path(__file__).parent
LONGEST = ("contract/drivers/test_oci_elsewhere.py",)
"""These start first, so that the others fill up the time until they end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {str(HERE / name): rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(str(item.path), len(ranks)))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(StopAtBrokenFiles())


class StopAtBrokenFiles:
    """As without xdist, which would go on with the files that can be imported and tell at the end."""

    @pytest.hookimpl(trylast=True)  # when the error has been noted
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            pytest.exit(f"cannot collect {report.nodeid}", returncode=pytest.ExitCode.INTERRUPTED)


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
