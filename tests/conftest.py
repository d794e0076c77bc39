"""Fixtures that every suite uses."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest
from hypothesis import HealthCheck, settings

from support.costs import Costs
from support.servers.dockerd import DockerSocket, docker_daemon, unusable_dockerd

HERE = Path(__file__).parent
LONGEST = (
    "e2e/sessions/test_shell_corpus.py",
    "e2e/sessions/test_shell_corpus_ends.py",
    "contract/agents/test_opencode.py",
    "faults/threads/test_real.py",
    "contract/drivers/test_oci_elsewhere.py",
    "contract/agents/test_sandbox_agent.py",
    "contract/agents/test_acp_claude.py",
    "e2e/threads/test_agents.py",
    "faults/threads/test_real_kills.py",
    "contract/drivers/test_docker.py",
    "contract/drivers/test_oci.py",
    "contract/agents",
    "faults",
    "browser/gateway",
    "e2e",
    "contract",
    "integration",
)
"""These files, and then what is below these directories, start first; the others fill up the time until they end."""

# The same examples in every run: what a run says is about the change, not about luck. TEST_EXPLORE=1 seeks new ones.
# And no limits of time, which a busy machine would exceed.
settings.register_profile(
    "steady",
    derandomize="TEST_EXPLORE" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

# A shell lets what it starts in the background ignore Ctrl-C, and all its children inherit that: also those that a test
# wants to end by it.
for signum in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        name = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
        return next((n for n, first in enumerate(LONGEST) if f"{name}/".startswith(f"{first}/")), len(LONGEST))

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half a character in what a failed test shows must not end the run: xdist can send none."""
    report = yield
    try:
        str(report.longrepr).encode()
    except UnicodeEncodeError:
        report.longrepr = str(report.longrepr).encode(errors="backslashreplace").decode()
    return report


def pytest_configure(config: pytest.Config) -> None:
    if shown := os.environ.get("TEST_COSTS"):
        config.pluginmanager.register(Costs(int(shown)))
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
