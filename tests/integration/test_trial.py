"""``holdfast doctor`` tries a real sandbox, in the real place."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.daemon import doctor, trial
from holdfast.daemon.config.config import Config
from holdfast.drivers.base import Check
from support.machine.state_dir import new_state_dir, remove_state_dir

pytestmark = pytest.mark.anyio
ROOT = os.geteuid() == 0


@pytest.fixture
def place() -> Iterator[Path]:
    directory = new_state_dir()
    yield directory
    remove_state_dir(directory)


def config(state_dir: Path, **changes: object) -> Config:
    return Config.model_validate({"state_dir": state_dir, **changes})


async def last_check(settings: Config) -> Check:
    return list(await doctor.run_checks(settings))[-1]


async def test_a_sandbox_is_made_and_leaves_nothing(place: Path) -> None:
    found = await last_check(config(place / "state", driver="process"))
    assert (found.name, found.ok) == ("a sandbox", True), found
    assert sorted(path.name for path in (place / "state").iterdir()) == ["images", "runtime-bundle"]


@pytest.mark.skipif(not ROOT, reason="NOT ROOT: closed directories are NOT TESTED")
@pytest.mark.parametrize("runtime", ["runc", "runsc"])
async def test_a_closed_directory_above_is_no_obstacle_or_is_named(place: Path, runtime: str) -> None:
    (place / "closed").mkdir(0o700)
    found = await last_check(config(place / "closed" / "state", runtime=runtime))
    if found.name != "a sandbox":
        pytest.skip(f"no {runtime} here: {found}")
    assert found.ok or f"chmod o+x {place / 'closed'}" in found.remedy
    assert found.ok == (runtime == "runc") or "Linux 5.19" in str(await doctor.run_checks(config(place / "other")))


async def test_a_place_where_nothing_can_be_run_is_named(place: Path) -> None:
    """What no check foresees: the runtime bundle lies there."""
    state = place / "state"
    state.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "noexec,mode=711", "none", str(state)]
    if not ROOT or subprocess.run(mounted, check=False, capture_output=True).returncode:  # noqa: ASYNC221 - a moment
        pytest.skip("cannot mount anything")
    found = await last_check(config(state))
    if found.name != "a sandbox":
        pytest.skip(f"no sandboxes here: {found}")
    assert (found.ok, found.fatal) == (False, True)
    assert "noexec" in found.remedy, found


async def test_one_that_never_calls_ends_in_good_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_SECONDS", 0.01)
    began = time.monotonic()
    found = await trial.try_sandbox(config(place / "state", driver="process"))
    assert not found.ok
    assert time.monotonic() - began < 30
    assert not (place / "state" / "trial").exists()


async def test_an_image_that_is_not_there_is_named(place: Path) -> None:
    found = await last_check(config(place / "state", driver="process", default_image="nosuch"))
    assert not found.ok
    assert "nosuch" in found.detail, found


async def test_nothing_is_tried_where_something_needed_is_missing(place: Path) -> None:
    found = await doctor.run_checks(config(place / "state", runtime="nosuch-runtime"))
    assert "a sandbox" not in [check.name for check in found]
