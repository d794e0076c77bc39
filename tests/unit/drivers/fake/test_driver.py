"""Faults on demand: what the fake driver promises to the tests that use it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.drivers.base import Handle, ImageRoot, SandboxSpec, SandboxState
from holdfast.drivers.conformance.harness import get_result, run_command
from holdfast.drivers.fake.driver import FakeDriver, FakeWorld
from holdfast.errors import (
    DriverTransient,
    ExecNotFound,
    IdempotencyMismatch,
    SandboxLost,
    SandboxNotFound,
    SnapshotBroken,
)
from holdfast.link.hub import LinkHub
from holdfast.link.link import Link
from holdfast.records.limits import Limits, Network

pytestmark = pytest.mark.anyio

SESSION = "ses_one"


@dataclass
class Scene:
    driver: FakeDriver
    hub: LinkHub
    spec: SandboxSpec

    async def start(self) -> Link:
        link = await self.hub.listen(self.spec.session_id, self.spec.token)
        await self.driver.create(self.spec)
        await link.wait_connected(10)
        return link

    @property
    def handle(self) -> Handle:
        return self.driver.handle_for(self.spec.session_id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    hub = LinkHub(tmp_path)
    spec = SandboxSpec(
        session_id=SESSION,
        image=ImageRoot("empty", tmp_path),
        limits=Limits(1, 64, 64, 64),
        network=Network.NONE,
        writable_root=False,
        env={},
        link_dir=hub.directory(SESSION),
        token="secret",
    )
    driver = FakeDriver(FakeWorld())
    yield Scene(driver, hub, spec)
    await driver.world.close()
    await hub.shut_down()


async def test_an_error_strikes_as_often_as_asked(scene: Scene) -> None:
    scene.driver.inject("create", error=DriverTransient("the disk is slow"), times=2)
    for _ in range(2):
        with pytest.raises(DriverTransient, match="the disk is slow"):
            await scene.driver.create(scene.spec)
    assert await scene.driver.list() == []
    await scene.driver.create(scene.spec)
    assert scene.driver.calls == [("create", SESSION)] * 2 + [("list", ""), ("create", SESSION)]


async def test_an_error_in_the_middle_leaves_a_half_made_sandbox(scene: Scene) -> None:
    scene.driver.inject("create", error=DriverTransient("no room"), moment="middle")
    with pytest.raises(DriverTransient):
        await scene.driver.create(scene.spec)
    assert [info.state for info in await scene.driver.list()] == [SandboxState.CREATED]
    await scene.start()


async def test_an_error_afterwards_hides_a_success(scene: Scene) -> None:
    scene.driver.inject("create", error=DriverTransient("the answer was lost"), moment="after")
    with pytest.raises(DriverTransient):
        await scene.driver.create(scene.spec)
    assert (await scene.driver.inspect(scene.handle)).state is SandboxState.RUNNING


async def test_a_half_done_destroy_leaves_a_stopped_sandbox(scene: Scene) -> None:
    await scene.start()
    scene.driver.inject("destroy", error=DriverTransient("device busy"), moment="middle")
    with pytest.raises(DriverTransient):
        await scene.driver.destroy(scene.handle)
    assert (await scene.driver.inspect(scene.handle)).state is SandboxState.STOPPED


async def test_a_call_hangs_until_it_is_released(scene: Scene) -> None:
    await scene.start()
    scene.driver.inject("destroy", hang=True, times=None)
    hanging = asyncio.create_task(scene.driver.destroy(scene.handle))
    done, _ = await asyncio.wait([hanging], timeout=0.05)
    assert not done
    scene.driver.release("destroy")
    await hanging
    assert await scene.driver.list() == []


async def test_a_hanging_call_can_be_cancelled(scene: Scene) -> None:
    scene.driver.inject("list", hang=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await scene.driver.list()
    assert await scene.driver.list() == []


async def test_faults_have_the_names_of_methods(scene: Scene) -> None:
    with pytest.raises(ValueError, match="explode"):
        scene.driver.inject("explode")


async def test_a_killed_sandbox_has_stopped_and_hung_up(scene: Scene) -> None:
    link = await scene.start()
    left = asyncio.Event()
    link.on_disconnect = left.set
    await scene.driver.kill(SESSION, oom=True)
    async with asyncio.timeout(30):
        await left.wait()
    info = await scene.driver.inspect(scene.handle)
    assert (info.state, info.oom_killed) == (SandboxState.STOPPED, True)


async def test_a_frozen_runner_stays_connected_and_never_answers(scene: Scene) -> None:
    link = await scene.start()
    scene.driver.freeze(SESSION)
    with pytest.raises(SandboxLost):
        await link.call("ping", {}, timeout=0.1)
    assert link.connected
    scene.driver.thaw(SESSION)
    await link.call("ping", {}, timeout=10)


async def test_a_cut_link_is_dialled_again_and_commands_go_on(scene: Scene) -> None:
    link = await scene.start()
    running = asyncio.create_task(run_command(link, "sleep 0.2; echo done", exec_id="e1"))
    await link.call("ping", {}, timeout=10)
    scene.driver.cut_link(SESSION)
    assert (await running).stdout == "done\n"


async def test_a_forgotten_sandbox_is_not_found(scene: Scene) -> None:
    await scene.start()
    await scene.driver.forget(SESSION)
    with pytest.raises(SandboxNotFound):
        await scene.driver.inspect(scene.handle)
    assert await scene.driver.list() == []


async def test_another_driver_finds_the_same_world(scene: Scene) -> None:
    await scene.start()
    scene.driver.inject("list", error=DriverTransient("only the old daemon has this"))
    restarted = FakeDriver(scene.driver.world)
    assert [info.session_id for info in await restarted.list()] == [SESSION]


async def test_a_command_with_the_same_id_runs_once(scene: Scene) -> None:
    link = await scene.start()
    first, again = await asyncio.gather(*(run_command(link, "echo once", exec_id="e1") for _ in range(2)))
    assert first == again == await get_result(link, "e1")
    with pytest.raises(IdempotencyMismatch):
        await run_command(link, "echo twice", exec_id="e1")
    with pytest.raises(ExecNotFound):
        await get_result(link, "e2")


@pytest.mark.parametrize(
    ("command", "exit_code", "stdout"),
    [
        ("true", 0, ""),
        ("false", 1, ""),
        ("exit 300", 44, ""),
        ("false; echo $NAME x", 0, "value x\n"),
        ("cat", 0, "input"),
        ("", 0, ""),
        ("nonsense", 127, ""),
    ],
)
async def test_its_language(scene: Scene, command: str, exit_code: int, stdout: str) -> None:
    link = await scene.start()
    result = await run_command(link, command, stdin=b"input", env={"NAME": "value"})
    assert (result.exit_code, result.stdout) == (exit_code, stdout)


async def test_a_snapshot_that_fails_half_way_is_no_snapshot(scene: Scene, tmp_path: Path) -> None:
    await scene.start()
    scene.driver.inject("snapshot", error=DriverTransient("the disk is slow"), moment="middle")
    with pytest.raises(DriverTransient):
        await scene.driver.snapshot(scene.handle, tmp_path / "one")
    assert (tmp_path / "one.new").exists()
    with pytest.raises(SnapshotBroken):
        await scene.driver.restore(scene.spec, tmp_path / "one")
    await scene.driver.forget_snapshot(tmp_path / "one")
    assert not (tmp_path / "one.new").exists()
    assert ("snapshot", SESSION) in scene.driver.calls
