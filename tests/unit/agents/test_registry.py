"""Agents by their names."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.agents.known import KNOWN
from holdfast.agents.registry import AgentRegistry
from holdfast.drivers.fake.driver import FakeWorld
from holdfast.errors import BadInput, ConfigError


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_known_agent_can_be_had(name: str) -> None:
    registry = AgentRegistry([name])
    assert registry.get(name).name == name
    assert registry.get() is registry.get(name)


def test_wrong_settings_are_told() -> None:
    with pytest.raises(ConfigError, match="nobody"):
        AgentRegistry(["scripted", "nobody"])
    with pytest.raises(ConfigError, match="default_agent"):
        AgentRegistry(["scripted"], default="other")


def test_what_is_not_offered_is_the_callers_mistake() -> None:
    with pytest.raises(BadInput, match="scripted"):
        AgentRegistry(["scripted"]).get("fake")
    with pytest.raises(BadInput):
        AgentRegistry([]).get()


def test_one_that_was_made_elsewhere() -> None:
    registry = AgentRegistry([])
    agent = FakeAgent(FakeAgentWorld(FakeWorld()))
    registry.add(agent)
    assert registry.get() is registry.get("fake") is agent


def test_adapters_are_imported_when_they_are_asked_for() -> None:
    source = str(Path(__file__).parents[3] / "src")
    probe = (
        f"import sys; sys.path.insert(0, {source!r}); from holdfast.agents.registry import AgentRegistry\n"
        "AgentRegistry(['scripted']); assert 'holdfast.agents.scripted.adapter' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", probe], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_deadlines_are_those_of_the_daemon_and_else_their_own(name: str) -> None:
    agent = AgentRegistry([name], seconds={"start": 333.0, "request": 44.0, "health": 7.0}).get()
    usual = AgentRegistry([name]).get()
    mine, own = (getattr(one, "_timeouts", None) or one._supervisor.timeouts for one in (agent, usual))  # type: ignore[attr-defined]  # each has one of them
    assert (mine.request, mine.health, mine.quiet) == (44.0, 7.0, own.quiet)
    assert (own.request, own.health) == (type(usual).usual.request, type(usual).usual.health)  # type: ignore[attr-defined]
    if hasattr(own, "start"):
        assert (mine.start, own.start) == (333.0, type(usual).usual.start)  # type: ignore[attr-defined]
