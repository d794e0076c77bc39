"""Which agent a thread has that names none."""

from pathlib import Path

import pytest

from holdfast.agents.known import KNOWN, how_to_install
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring import threads as chooser
from holdfast.daemon.wiring.threads import agent_memory, default_agent
from holdfast.images.store import ImageStore


@pytest.fixture
def no_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing installed, and where it would be."""
    monkeypatch.setattr(chooser, "AGENT_BIN", str(tmp_path / "bin"))
    monkeypatch.setattr(chooser, "_PATH", str(tmp_path / "nowhere"))
    return tmp_path / "bin"


def put_pi(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "pi").write_text("#!/bin/sh\n")
    (folder / "pi").chmod(0o755)


def test_a_real_one_where_it_is_installed(no_agents: Path) -> None:
    assert default_agent(Config(), isolated=True) == "scripted"
    put_pi(no_agents)
    assert default_agent(Config(), isolated=True) == "pi"


def test_what_is_set_counts(no_agents: Path) -> None:
    put_pi(no_agents)
    assert default_agent(Config(default_agent="opencode"), isolated=True) == "opencode"
    assert default_agent(Config(agents=("opencode", "claude")), isolated=True) == "opencode"
    assert default_agent(Config(agents=("opencode", "scripted")), isolated=True) == "scripted"
    assert default_agent(Config(agents=()), isolated=True) is None


def test_without_isolation_there_is_no_way_to_a_model(no_agents: Path) -> None:
    put_pi(no_agents)
    assert default_agent(Config(), isolated=False) == "scripted"


@pytest.mark.anyio
async def test_an_image_that_has_it(no_agents: Path, tmp_path: Path) -> None:
    images = ImageStore(tmp_path / "images", id_base=0)
    put_pi(tmp_path / "with" / "usr" / "local" / "bin")
    (tmp_path / "without" / "usr").mkdir(parents=True)
    for name in ("with", "without"):
        await images.import_(name, tmp_path / name)
    found = {
        name: default_agent(Config(default_image=name), images, isolated=True) for name in ("with", "without", "none")
    }
    assert found == {"with": "pi", "without": "scripted", "none": "scripted"}


def test_memory_is_what_the_agent_needs_and_never_less_than_the_default() -> None:
    assert agent_memory(Config())["opencode"] == KNOWN["opencode"].memory_mb
    assert "scripted" not in agent_memory(Config())
    assert "pi" not in agent_memory(Config(mem_limit_mb=4096))


def test_how_to_come_by_an_agent() -> None:
    assert "holdfast image build agent" in how_to_install("pi")
    assert "@google/gemini-cli" in how_to_install("gemini")
    assert how_to_install("of-somebody-else")
