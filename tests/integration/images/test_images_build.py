"""Builds by the real mmdebstrap from the host's mirrors: a system of busybox, children of it, failures, crashes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.drivers.test_oci_elsewhere import AS_USER, need_readable, subordinate_list
from holdfast.errors import BuildFailed, Conflict, RuntimeUnavailable, ToolMissing, Unavailable
from holdfast.images.builds import enclosure
from holdfast.images.builds.builder import Builder, Built
from holdfast.images.builds.recipe import Recipe, load
from holdfast.images.store import ImageStore
from support.daemons.daemon import wait_for
from unit.images.tars import ID_BASE, ROOT_DIRS, make_tar

SRC = Path(__file__).parents[3] / "src"
TINY = """
variant = "extract"
packages = ["busybox-static"]
env = { GREETING = "hello world" }
commands = ["echo made >/etc/made", "mkdir /srv && touch /srv/of-33 && chown 33:44 /srv/of-33"]
[[files]]
path = "/opt/a/hello"
content = "hi"
mode = "0755"
[services.web]
command = "httpd -f -p 8000"
port = 8000
"""
CHILD = (
    'from = "./tiny.toml"\ncommands = ["cat /etc/made >/etc/made-too", "rm /opt/a/hello", "stat -c %u /srv/of-33"]\n'
)
BUILD = """
import sys
from pathlib import Path
from holdfast.images.builds.builder import Builder
from holdfast.images.builds.recipe import load
from holdfast.images.store import ImageStore
base = None if sys.argv[3] == "None" else int(sys.argv[3])
store = ImageStore(Path(sys.argv[1]), id_base=base)
recipe = load(sys.argv[2])
print(Builder(store, tell=lambda *words: print(*words, flush=True), seconds=90).build(recipe, recipe.name).cached)
"""

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module", autouse=True)
def usable() -> None:
    if os.geteuid() != 0:
        pytest.skip("builds are tested as root, and from there as an ordinary user")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("BUILDS ARE NOT TESTED: install the package 'mmdebstrap'")


class Kitchen:
    """A store, recipes, and what was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = ImageStore(directory / "images", id_base=ID_BASE)
        self.told: list[str] = []

    def recipe(self, name: str, text: str) -> Recipe:
        (self.directory / f"{name}.toml").write_text(text)
        return load(str(self.directory / f"{name}.toml"))

    def build(self, recipe: Recipe, *, rebuild: bool = False, replace: bool = False, seconds: float = 120.0) -> Built:
        builder = Builder(self.store, tell=lambda image, step: self.told.append(f"{image}: {step}"), seconds=seconds)
        return builder.build(recipe, recipe.name, rebuild=rebuild, replace=replace)

    def layout(self, name: str) -> Path:
        return self.store.root_of(name).layout

    def assert_clean(self) -> None:
        """No half image, no mount, no process."""
        assert list(self.store.root.glob(".tmp-*")) == []
        assert str(self.directory) not in Path("/proc/self/mounts").read_text()
        assert users_of(self.directory) == []


def users_of(directory: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line and int(process.name) != os.getpid():
            found.append(line)
    return found


@pytest.fixture(scope="module")
def kitchen() -> Iterator[Kitchen]:
    with open_place() as place:
        yield from cook(Kitchen(place))


@contextlib.contextmanager
def open_place() -> Iterator[Path]:
    """Not one of pytest's, which are closed to the ids that enclosed programs have."""
    with tempfile.TemporaryDirectory(prefix="holdfast-build-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def cook(kitchen: Kitchen) -> Iterator[Kitchen]:
    try:
        kitchen.build(kitchen.recipe("tiny", TINY))
    except BuildFailed as error:
        if "Temporary failure resolving" in error.message or "Could not connect" in error.message:
            pytest.skip("BUILDS ARE NOT TESTED: no mirror of Debian can be reached from here")
        raise
    yield kitchen
    kitchen.assert_clean()


def test_a_tiny_image(kitchen: Kitchen) -> None:
    root = kitchen.layout("tiny")
    assert (root / "etc/made").read_text() == "made\n"
    assert (root / "opt/a/hello").read_text() == "hi"
    assert (root / "opt/a/hello").stat().st_mode & 0o777 == 0o755
    assert ID_BASE is not None
    owned = (root / "srv/of-33").stat()
    assert (owned.st_uid - ID_BASE, owned.st_gid - ID_BASE) == (33, 44)
    assert kitchen.store.root_of("tiny").env == {"GREETING": "hello world"}
    assert [(one.name, one.port) for one in kitchen.store.root_of("tiny").services] == [("web", 8000)]
    info = kitchen.store.info("tiny")
    assert (
        info is not None and info.kind == "built" and info.recipe == load(str(kitchen.directory / "tiny.toml")).digest
    )
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    assert [name for name in left if name.startswith(("etc/apt/", "run/"))] == []
    assert (root / "etc/resolv.conf").read_text() == ""  # the host's was lent
    assert any("running echo made" in step for step in kitchen.told)
    kitchen.assert_clean()


def test_the_same_again_is_there_already(kitchen: Kitchen) -> None:
    before = len(kitchen.told)
    assert kitchen.build(kitchen.recipe("tiny", TINY)).cached
    assert len(kitchen.told) == before


def test_a_child_uses_what_is_there_and_rebuild_does_not(kitchen: Kitchen) -> None:
    before = kitchen.store.root_of("tiny").layout
    made = kitchen.build(kitchen.recipe("child", CHILD))
    assert not made.cached and kitchen.store.root_of("tiny").layout == before
    root = kitchen.layout("child")
    assert (root / "etc/made-too").read_text() == "made\n"
    assert not (root / "opt/a/hello").exists()
    assert ID_BASE is not None and (root / "srv/of-33").stat().st_uid == ID_BASE + 33
    assert kitchen.store.root_of("child").env == {"GREETING": "hello world"}
    assert kitchen.store.root_of("child").services == kitchen.store.root_of("tiny").services
    assert not kitchen.build(kitchen.recipe("child", CHILD), rebuild=True).cached
    assert kitchen.store.root_of("tiny").layout != before


def test_a_failure_names_its_log_and_leaves_nothing(kitchen: Kitchen) -> None:
    recipe = kitchen.recipe("broken", 'from = "./tiny.toml"\ncommands = ["echo the reason; exit 7"]\n')
    with pytest.raises(BuildFailed) as caught:
        kitchen.build(recipe)
    log = kitchen.store.root / ".builds" / f"broken-{recipe.digest[:12]}.log"
    assert str(log) in caught.value.message and "the reason" in caught.value.message
    assert "the reason" in log.read_text()
    assert kitchen.store.info("broken") is None
    kitchen.assert_clean()


def test_one_that_takes_too_long_is_stopped(kitchen: Kitchen) -> None:
    recipe = kitchen.recipe("slow", 'from = "./tiny.toml"\ncommands = ["sleep 600"]\n')
    with pytest.raises(Unavailable, match="did not end within"):
        kitchen.build(recipe, seconds=6)
    assert kitchen.store.info("slow") is None
    kitchen.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["KILL", "INT"])
def test_one_that_is_killed_leaves_nothing_running_or_mounted(kitchen: Kitchen, number: signal.Signals) -> None:
    kitchen.recipe("killed", 'from = "./tiny.toml"\ncommands = ["sleep 600"]\n')
    argv = [str(kitchen.store.root), str(kitchen.directory / "killed.toml"), str(ID_BASE)]
    with subprocess.Popen(
        [sys.executable, "-c", BUILD, *argv], stdout=subprocess.PIPE, text=True, env=own_env()
    ) as build:
        assert build.stdout is not None
        for line in build.stdout:
            if "running sleep" in line:
                break
        build.send_signal(number)
    wait_for(lambda: users_of(kitchen.store.root) == [], "all that it started is gone", seconds=10)
    assert str(kitchen.directory) not in Path("/proc/self/mounts").read_text()
    assert kitchen.store.info("killed") is None
    left = list(kitchen.store.root.glob(".tmp-*"))
    assert (left != []) == (number == signal.SIGKILL)
    kitchen.store.sweep()
    kitchen.assert_clean()


def test_two_builds_of_one_recipe_share(kitchen: Kitchen) -> None:
    recipe = kitchen.recipe("shared", 'from = "./tiny.toml"\ncommands = ["sleep 1"]\n')
    results: list[Built] = []
    threads = [threading.Thread(target=lambda: results.append(kitchen.build(recipe))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(result.cached for result in results) == [False, True]
    assert results[0].info == results[1].info


def test_an_imported_image_is_not_built_over(kitchen: Kitchen, tmp_path: Path) -> None:
    import anyio

    anyio.run(kitchen.store.import_, "mine", make_tar(tmp_path / "root.tar", list(ROOT_DIRS)))
    recipe = kitchen.recipe("mine", 'from = "./tiny.toml"\n')
    with pytest.raises(Conflict, match="was imported"):
        kitchen.build(recipe)
    assert kitchen.build(recipe, replace=True).info.kind == "built"


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(ToolMissing, match="apt-get install no-such-tool"):
        enclosure.need_tools("sh", "no-such-tool")


def test_what_is_enclosed_is_nobody_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    said = bytearray()
    script = f"id -u; cat {secret}; kill -0 {os.getpid()}; ls /proc | grep -c '^[0-9]'; exit 3"
    status = enclosure.run(["sh", "-c", script], env={}, seconds=20, hear=said.extend, check=lambda: None)
    lines = said.decode().splitlines()
    assert status == 3 and lines[0] == "0"
    assert "Permission denied" in lines[1] and "No such process" in lines[2]
    assert 0 < int(lines[-1]) < 6


def own_env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC)}


def test_as_an_ordinary_user(kitchen: Kitchen) -> None:
    need_readable(Path(sys.executable).resolve(), SRC)
    with open_place() as place:
        build_as_nobody(place)


def test_a_place_that_is_closed_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed/images").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    with pytest.raises(RuntimeUnavailable, match="chmod o\\+x"):
        enclosure.own(tmp_path / "closed/images")


def build_as_nobody(place: Path) -> None:
    (place / "tiny.toml").write_text(TINY)
    (place / "state").mkdir()
    os.chown(place / "state", 65534, 65534)
    steps = [subordinate_list(place, name, filled=True) for name in ("subuid", "subgid")]
    (place / "build.py").write_text(BUILD)
    command = f"{sys.executable} {place}/build.py {place}/state/images {place}/tiny.toml None"
    script = " && ".join([*steps, f"exec {AS_USER} {command}"])
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        env={**own_env(), "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    store = ImageStore(place / "state/images", id_base=None)
    root = store.root_of("tiny").layout
    assert (root / "etc/made").read_text() == "made\n"
    assert {path.lstat().st_uid for path in root.rglob("*")} == {65534}
    assert list(store.root.glob(".tmp-*")) == []
