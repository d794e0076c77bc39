"""Daemons that are killed at the worst moments. Each module has one; tests restart it as they like."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from support.agents.towns import AGENTS, open_agent_town
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.machine.machine import Held, HeldRuntime, open_held
from support.threads.real_threads import RealDesk, Town, forgotten, open_town, opened

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
def town(usable: None) -> Iterator[Town]:
    with open_town() as town:
        yield town


@pytest.fixture
async def desk(town: Town) -> AsyncIterator[RealDesk]:
    """With a thread that has said something and has a file."""
    async with town.daemon() as desk:
        await opened(desk)
        yield desk
        await forgotten(town, desk)


ALWAYS = ("scripted", "pi")
"""The one whose faults can be told apart from its own, and the default."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Most rows of the failure table are tried with those of ``ALWAYS``, and with all others in the long run."""
    if "agent_town" in metafunc.fixturenames:
        metafunc.parametrize("agent_town", chosen_agents(metafunc.definition), indirect=True, scope="module")


def chosen_agents(test: pytest.Item) -> Sequence[str]:
    if test.get_closest_marker("every_agent") or os.environ.get("TEST_WHOLE_SUITE"):
        agents: Sequence[str] = ("scripted", *AGENTS)
    else:
        agents = ("scripted",) if test.get_closest_marker("scripted_first") else ALWAYS
    return [agent for agent in agents if agent != "scripted" or not test.get_closest_marker("shipped_agents")]


@pytest.fixture(scope="module")
def agent_town(usable: None, request: pytest.FixtureRequest) -> Iterator[Town]:
    """One per agent: what a row of the failure table says is so with each of them."""
    with open_agent_town(str(request.param)) as town:
        yield town


@pytest.fixture
async def agent_desk(agent_town: Town) -> AsyncIterator[RealDesk]:
    """As ``desk``, with each agent."""
    async with agent_town.daemon() as desk:
        await opened(desk)
        yield desk
        await forgotten(agent_town, desk)
