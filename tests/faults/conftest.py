"""Daemons that are killed at the worst moments. Each module has one; tests restart it as they like."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from support.agents.sites import AGENTS, open_agent_site
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.machine.machine import Held, HeldRuntime, open_held
from support.threads.real_threads import RealSite, RealThreadDaemon, forgotten, open_real_site, opened

REAP_SECONDS = 0.5


@pytest.fixture(scope="session")
def usable() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(f"NO FAULT IS INJECTED ON REAL SANDBOXES: {reason}")


@pytest.fixture(scope="module")
def shared_daemon(usable: None) -> Iterator[DaemonProcess]:
    """With a quick tick, so that what a tick must do is done soon."""
    with DaemonProcess(reap_interval_seconds=REAP_SECONDS, disk_limit_mb=64) as process:
        yield process


@pytest.fixture
def daemon(shared_daemon: DaemonProcess) -> Iterator[DaemonProcess]:
    """Up and without sessions, whatever the test before has done to it."""
    yield shared_daemon
    shared_daemon.clear()


@pytest.fixture(scope="module")
def shared_held(usable: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with open_held(HeldRuntime(tmp_path_factory.mktemp("runtime"))) as held:
        yield held


@pytest.fixture
def held(shared_held: Held) -> Iterator[Held]:
    """A daemon like ``daemon``, whose runtime can be held."""
    yield shared_held
    daemon, runtime = shared_held
    runtime.let_go()
    daemon.clear()


@pytest.fixture(scope="module")
def site(usable: None) -> Iterator[RealSite]:
    with open_real_site() as site:
        yield site


@pytest.fixture
async def thread_daemon(site: RealSite) -> AsyncIterator[RealThreadDaemon]:
    """With a thread that has said something and has a file."""
    async with site.daemon() as thread_daemon:
        await opened(thread_daemon)
        yield thread_daemon
        await forgotten(site, thread_daemon)


ALWAYS = ("scripted", "pi")
"""The one whose faults can be told apart from its own, and the default."""
EACH_ADAPTER = (*ALWAYS, "opencode", "claude", "sandbox-agent")
"""And one for each of the other adapters: a server of its own, ACP, and the one that has agents behind it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Most rows of the failure table are tried with those of ``ALWAYS``, and all with every agent in the long run."""
    if "agent_site" in metafunc.fixturenames:
        metafunc.parametrize("agent_site", chosen_agents(metafunc.definition), indirect=True, scope="module")


def chosen_agents(test: pytest.Item) -> Sequence[str]:
    if os.environ.get("TEST_WHOLE_SUITE"):
        agents: Sequence[str] = ("scripted", *AGENTS)
    elif test.get_closest_marker("each_adapter"):
        agents = EACH_ADAPTER
    else:
        agents = ("scripted",) if test.get_closest_marker("scripted_first") else ALWAYS
    return [agent for agent in agents if agent != "scripted" or not test.get_closest_marker("shipped_agents")]


@pytest.fixture(scope="module")
def agent_site(usable: None, request: pytest.FixtureRequest) -> Iterator[RealSite]:
    """One per agent: what a row of the failure table says is so with each of them."""
    with open_agent_site(str(request.param)) as site:
        yield site


@pytest.fixture
async def agent_daemon(agent_site: RealSite) -> AsyncIterator[RealThreadDaemon]:
    """As ``thread_daemon``, with each agent."""
    async with agent_site.daemon() as thread_daemon:
        await opened(thread_daemon)
        yield thread_daemon
        await forgotten(agent_site, thread_daemon)
