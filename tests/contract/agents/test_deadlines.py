"""How long an agent may take is set by the configuration: each of its settings takes effect."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from holdfast.agents.base import Agent, Place, Prompt
from holdfast.agents.conformance.harness import raises
from holdfast.agents.scripted import process
from holdfast.agents.supervisor import AgentProcess, JsonObject, Launch, Supervisor, supervisor
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring.threads import make_agents
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import AgentDown, AgentError
from holdfast.sessions.use.processes import ProcessView
from support.agents.scripted_harness import ScriptedHarness, scripted_harness

pytestmark = pytest.mark.anyio

SHORT, LONG = 1.0, 300.0
SOON = 15.0
"""Shorter than all deadlines that the settings replace (20 s and 30 s), but for health, which is 5 s."""


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedHarness]:
    monkeypatch.setattr(supervisor, "TERM_MS", 200)
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        yield harness


def offered(tmp_path: Path, name: str, **seconds: float) -> Agent:
    """The agent that a daemon with these settings has."""
    config = Config.model_validate({"agents": [name], "default_agent": name, **seconds})
    return make_agents(config, ProcessDriver(tmp_path / "unused")).get(name)


async def stop_process(place: Place) -> None:
    view, _ = await process.find(place)
    assert view is not None
    await place.sandbox.processes.signal(place.session_id, view.process_id, "STOP")


async def lasts(work: Awaitable[object]) -> float:
    """How long it takes until the agent is given up."""
    begun = time.monotonic()
    await raises(AgentError, work)
    return time.monotonic() - begun


async def test_the_start(harness: ScriptedHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, place = process.launch, await harness.new_session()

    async def launch_hung(place: Place, root: str, generation: int) -> ProcessView:
        view = await launch(place, root, generation)
        await stop_process(place)
        return view

    monkeypatch.setattr(process, "launch", launch_hung)
    agent = offered(tmp_path, "scripted", agent_start_seconds=SHORT)
    assert SHORT * 0.9 < await lasts(agent.start(place)) < SOON


async def test_a_request(harness: ScriptedHarness, tmp_path: Path) -> None:
    place = await harness.new_session()
    agent = offered(tmp_path, "scripted", agent_request_seconds=SHORT)
    await agent.start(place)
    conversation = await agent.create_conversation(place)
    await stop_process(place)
    assert SHORT * 0.9 < await lasts(agent.prompt(place, conversation, Prompt("p", "say hello"))) < SOON


async def test_the_look_before_a_turn(harness: ScriptedHarness, tmp_path: Path) -> None:
    place = await harness.new_session()
    await offered(tmp_path, "scripted").start(place)
    await stop_process(place)
    assert 0.9 < await lasts(offered(tmp_path, "scripted", agent_health_seconds=SHORT).health(place)) < 4.5
    patient = asyncio.ensure_future(offered(tmp_path, "scripted", agent_health_seconds=LONG).health(place))
    done, _ = await asyncio.wait([patient], timeout=6.0)
    patient.cancel()
    assert not done, "5 s are the default, and this one has more"


async def test_agents_of_others(harness: ScriptedHarness, tmp_path: Path) -> None:
    """Pi, and all that are started as it is: a program that never says that it is ready."""
    place = await harness.new_session()
    agent = offered(tmp_path, "pi", agent_start_seconds=SHORT, agent_request_seconds=LONG)
    timeouts = agent._supervisor.timeouts  # type: ignore[attr-defined]  # that of Pi
    tiny = Supervisor("tiny", timeouts)

    async def hello(found: AgentProcess) -> None:
        def is_answer(_told: JsonObject) -> bool:
            return False

        await tiny.ask(place, found, b"{}\n", is_answer, timeouts.request)

    launch = Launch("tiny", ["bash", "-c", "while :; do sleep 0.1; done"], {}, {}, cwd="/")
    began = time.monotonic()
    error = await raises(AgentDown, tiny.start(place, launch, hello, hello))
    assert "1 s" in error.message
    assert time.monotonic() - began < SOON
