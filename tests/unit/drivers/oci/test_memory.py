"""A checkpoint that outlives its daemon: what the next one sees of it, at whatever moment it looks."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from holdfast.drivers.base import Check, SandboxState
from holdfast.drivers.commands import Outcome
from holdfast.drivers.names import machine_name
from holdfast.drivers.oci import memory as oci_memory
from holdfast.drivers.oci.config import Host
from holdfast.drivers.oci.driver import OciDriver
from holdfast.drivers.oci.gvisor import Gvisor
from holdfast.drivers.oci.machine import Machine
from holdfast.drivers.oci.memory import MemoryImage
from holdfast.drivers.runtime_bundle import RuntimeBundle
from holdfast.errors import DriverTransient
from support.waiting import until

pytestmark = pytest.mark.anyio

SESSION = "ses_a"
GVISOR = Machine(
    runtime="runsc",
    gvisor=Gvisor("1", ()),
    rootless=True,
    uid_map=[],
    gid_map=[],
    cgroups=False,
    cgroup_namespace=False,
    loop_disks=False,
    full_network=Check("network", False, ""),
)


class Looking(OciDriver):
    """The driver as far as it looks, with a runtime that knows one sandbox: it runs until the test ends it."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.runs = True
        self.image = MemoryImage(state_dir / "oci" / SESSION)
        self.image.half.mkdir(parents=True)

    def _ready(self) -> Host:
        return Host(cast(RuntimeBundle, None), GVISOR, 0, "")  # nobody here makes sandboxes

    async def _runtime(self, *arguments: str) -> Outcome:
        known = [{"id": SESSION, "status": "running"}] if self.runs else []
        return Outcome(arguments, 0, json.dumps(known), "")

    def succeed(self) -> None:
        self.runs = False
        self.image.half.rename(self.image.path)

    def fail(self) -> None:
        self.runs = False


@pytest.mark.parametrize(("end", "memory"), [(Looking.succeed, True), (Looking.fail, False)])
async def test_a_checkpoint_ends_while_the_driver_looks_who_is_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Looking], None], memory: bool
) -> None:
    """Who is no longer busy is seen as it is after that: not as running, and not without the memory that it has."""
    driver = Looking(tmp_path)

    def nobody_any_more(_path: str) -> set[int]:
        end(driver)
        return set()

    monkeypatch.setattr(oci_memory, "mentioning", nobody_any_more)
    found = await driver.inspect(driver.handle_for(SESSION))
    assert (found.state, found.memory, found.busy) == (SandboxState.STOPPED, memory, False)


async def test_whoever_writes_it_is_there_until_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that became ``mv`` would have no command line for a moment, and be taken for nobody."""
    image = MemoryImage(tmp_path)
    move = tmp_path / "mv"
    move.write_text(f'#!/bin/sh\ntr "\\0" "\\n" < /proc/$PPID/cmdline > {tmp_path}/parent\nexec /bin/mv "$@"\n')
    move.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not await image.save(["true"], SESSION, 0)
    assert image.exists()
    assert str(image.half) in (tmp_path / "parent").read_text().splitlines()


async def test_what_a_list_leaves_of_a_container_that_is_forgotten_meanwhile_is_removed(tmp_path: Path) -> None:
    """runsc locks whatever it lists, by a file that it makes."""
    driver = Looking(tmp_path)
    known = tmp_path / "oci" / "runtime"
    known.mkdir()
    name = machine_name(SESSION, tmp_path)
    state, lock = (known / f"{name}_sandbox:{name}.{kind}" for kind in ("state", "lock"))
    state.touch()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: str) -> Outcome:
        begun.set()
        await go_on.wait()
        lock.touch()
        return Outcome(arguments, 0, "[]", "")

    driver._runtime = slow  # type: ignore[method-assign]  # one that takes its time
    looking = asyncio.create_task(driver.list())
    await begun.wait()
    ending = asyncio.create_task(driver._end(driver.handle_for(SESSION), tmp_path / "oci" / SESSION))
    await until(lambda: not state.exists(), "it is forgotten")
    go_on.set()
    await asyncio.gather(looking, ending)
    assert list(known.iterdir()) == []


async def test_whose_memory_is_being_brought_back_is_busy_and_not_started_once_more(tmp_path: Path) -> None:
    """By a shell that has outlived its daemon. To start it again would end it, and its memory is used up by then."""
    driver = Looking(tmp_path)
    driver.fail()
    driver.image.half.rename(driver.image.path)
    handle = driver.handle_for(SESSION)
    assert not (await driver.inspect(handle)).busy
    restoring = await asyncio.create_subprocess_exec(
        *driver.image.then_retire(["sleep", "100"]), start_new_session=True
    )
    try:
        assert (await driver.inspect(handle)).busy
        with pytest.raises(DriverTransient, match="brought back"):
            await driver.start(handle)
        assert driver.image.exists()
    finally:
        os.killpg(restoring.pid, signal.SIGKILL)
        await restoring.wait()
    assert not (await driver.inspect(handle)).busy
