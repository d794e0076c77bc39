"""What is special about the docker driver: sleeping and waking, and a Docker daemon that goes away and comes back."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    SandboxUnderTest,
    eventually,
    run_command,
    sandbox,
    skip_if_unsupported,
)
from holdfast.drivers.docker.driver import DockerDriver
from holdfast.drivers.linux import mounts
from holdfast.errors import DriverConflict, DriverTransient, DriverUnsupported, HoldfastError, SandboxNotFound
from holdfast.records.limits import Network
from support.machine.docker_harness import DockerHarness
from support.machine.earlier import check_adoption
from support.servers.dockerd import Dockerd

pytestmark = pytest.mark.anyio

# clone3, which has the same number everywhere. In Python, because a shell has no way to make a system call.
CLONE3 = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(435, 0, 0); print(ctypes.get_errno())"
ENOSYS = "38\n"


@pytest.fixture
def harness(docker_harness: DockerHarness) -> DockerHarness:
    return docker_harness


async def pings(box: SandboxUnderTest, seconds: float) -> bool:
    try:
        await box.link.call("ping", {}, timeout=seconds)
    except HoldfastError:
        return False
    return True


async def test_a_paused_sandbox_goes_on_where_it_was(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        await box.run("kept=yes; cd /tmp; sleep 1000 & echo $! > pid")
        await box.driver.pause(box.handle)
        assert (await box.driver.inspect(box.handle)).state is SandboxState.PAUSED
        assert not await pings(box, 0.5), "a paused runner answers"
        await box.driver.pause(box.handle)
        await box.driver.resume(box.handle)
        await box.driver.resume(box.handle)
        assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
        result = await box.run("echo $kept $PWD; kill -0 $(cat pid) && echo alive")
        assert result.stdout == "yes /tmp\nalive\n"


async def test_a_paused_sandbox_can_be_destroyed(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        await box.run("sleep 1000 &")
        await box.driver.pause(box.handle)
        assert isinstance(await conflict_of(box), DriverConflict)
        await box.driver.destroy(box.handle)
        assert box.spec.session_id not in harness.docker.containers()


async def conflict_of(box: SandboxUnderTest) -> HoldfastError | None:
    try:
        await box.driver.create(box.spec)
    except HoldfastError as error:
        return error
    return None


@pytest.mark.parametrize("writable_root", [False, True])
async def test_a_stopped_sandbox_keeps_its_files(harness: DockerHarness, writable_root: bool) -> None:
    places = ["$HOME", "/tmp", *(["/etc", "/usr/local/lib"] if writable_root else [])]
    async with skip_if_unsupported("writable root"), sandbox(harness, writable_root=writable_root) as box:
        await box.run(f"for place in {' '.join(places)}; do echo here > $place/kept; done; sleep 1000 &")
        await box.driver.stop(box.handle)
        assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
        await box.driver.stop(box.handle)
        await box.driver.start(box.handle)
        await eventually(lambda: pings(box, 1), "the runner is back")
        files = " ".join(f"{place}/kept" for place in places)
        assert (await box.run(f"cat {files}; jobs")).stdout == "here\n" * len(places)
        with pytest.raises(DriverConflict):
            await box.driver.start(box.handle)
        counter = box.driver.oom_counter(box.handle)
        assert counter is not None, "the cgroups of the new start are not known"
        counter.close()


@pytest.mark.parametrize("writable_root", [False, True])
async def test_a_stopped_sandbox_starts_after_a_reboot(harness: DockerHarness, writable_root: bool) -> None:
    """A reboot takes the mounts away; the files of the session are on its disk."""
    async with sandbox(harness, writable_root=writable_root) as box:
        await box.run("echo here > ~/kept")
        await box.driver.stop(box.handle)
        home = harness.root / "s" / "docker" / box.spec.session_id
        mounts.unmount_tree(home)
        assert not (home / "disk" / "workspace").exists()
        await box.driver.start(box.handle)
        await eventually(lambda: pings(box, 1), "the runner is back")
        assert (await box.run("cat ~/kept; ls -d /usr/bin")).stdout == "here\n/usr/bin\n"
        if writable_root:
            assert (await box.run("touch /usr/new && ls /usr/new")).stdout == "/usr/new\n"


async def test_what_is_not_there_cannot_be_slept(harness: DockerHarness) -> None:
    driver = await harness.make_driver()
    for act in (driver.pause, driver.resume, driver.stop, driver.start):
        with pytest.raises(SandboxNotFound):
            await act(driver.handle_for("ses_thereisnosuchsession"))
        with pytest.raises(DriverUnsupported):
            await act(driver.handle_for("../../etc"))


@asynccontextmanager
async def without_docker(dockerd: Dockerd, end: Callable[[], None]) -> AsyncIterator[None]:
    await asyncio.to_thread(end)
    try:
        yield
    finally:
        await asyncio.to_thread(dockerd.start)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_sandboxes_outlive_the_docker_daemon(harness: DockerHarness, how: str) -> None:
    dockerd = harness.docker
    if not isinstance(dockerd, Dockerd):
        pytest.skip("this Docker daemon is not ours to end")
    async with sandbox(harness) as box:
        pid = dockerd.pid_of(box.handle)
        await box.run("kept=yes")
        slow = asyncio.create_task(run_command(box.link, "sleep 2; echo $kept"))
        async with without_docker(dockerd, getattr(dockerd, how)):
            assert (await slow).stdout == "yes\n"
            assert (
                await box.run(
                    "echo $kept",
                )
            ).stdout == "yes\n"
            for ask in (box.driver.list(), box.driver.inspect(box.handle), box.driver.destroy(box.handle)):
                with pytest.raises(DriverTransient):
                    await ask
            assert (await box.driver.stats(box.handle)).processes
        assert [info.state for info in await box.driver.list()] == [SandboxState.RUNNING]
        assert dockerd.pid_of(box.handle) == pid
        await box.driver.pause(box.handle)
        await box.driver.resume(box.handle)
        assert (await box.run("echo $kept")).stdout == "yes\n"


async def test_somebody_elses_container_is_left_alone(harness: DockerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that happens to have the name of a session, made by another state directory's daemon."""
    async with sandbox(harness) as box:
        stranger = await harness.make_stranger()
        monkeypatch.setattr(stranger, "_suffix", box.driver._suffix)  # type: ignore[attr-defined]
        with pytest.raises(SandboxNotFound):
            await stranger.inspect(box.handle)
        await stranger.destroy(box.handle)
        with pytest.raises(DriverConflict):
            await stranger.create(box.spec)
        await stranger.destroy(box.handle)
        assert (await box.run("echo unharmed")).stdout == "unharmed\n"


async def test_a_container_of_an_earlier_version_is_adopted(harness: DockerHarness) -> None:
    await check_adoption(harness)


async def test_a_pruned_image_is_loaded_again(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        image = next(name for name in harness.docker.images() if name.startswith("holdfast-skeleton:"))
        await box.driver.destroy(box.handle)
        harness.docker.remove_image(image)
        await box.driver.create(box.spec)
        await box.link.wait_connected(PATIENCE_SECONDS)
        assert harness.docker.images().count(image) == 1


@pytest.mark.parametrize("writable_root", [False, True])
async def test_a_removed_container_is_made_again(harness: DockerHarness, writable_root: bool) -> None:
    """``docker system prune --all`` removes the containers of all that sleep, and the image that they had."""
    async with skip_if_unsupported("writable root"), sandbox(harness, writable_root=writable_root) as box:
        await box.run("echo here > ~/kept; id -u > ~/who")
        await box.driver.stop(box.handle)
        harness.docker.remove(box.handle)
        for image in harness.docker.images():
            harness.docker.remove_image(image)
        assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
        await box.driver.stop(box.handle)
        await box.driver.snapshot(box.handle, harness.keep_dir() / "copy")
        await box.driver.start(box.handle)
        await eventually(lambda: pings(box, 1), "the runner is back")
        assert (await box.run('cat ~/kept; id -u | cmp - ~/who; echo "$SANDBOX_ID"')).stdout == (
            f"here\n{box.spec.session_id}\n"
        )
        with pytest.raises(DriverConflict):
            await box.driver.start(box.handle)


async def test_a_container_removed_while_it_ran_can_be_brought_back(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        await box.run("echo here > ~/kept; sync")
        harness.docker.remove(box.handle)
        assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
        await box.driver.start(box.handle)
        await eventually(lambda: pings(box, 1), "the runner is back")
        assert (await box.run("cat ~/kept")).stdout == "here\n"


async def test_what_is_needed_to_make_it_again_is_for_its_owner_only(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        kept = harness.root / "s" / "docker" / box.spec.session_id / "container.json"
        assert kept.stat().st_mode & 0o077 == 0
        kept.unlink()  # an earlier version kept nothing
        harness.docker.remove(box.handle)
        with pytest.raises(SandboxNotFound):
            await box.driver.start(box.handle)


async def test_what_docker_would_add_is_not_there(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        assert "HOSTNAME=" not in (await box.run("env")).stdout
        assert (await box.run("cat /etc/resolv.conf")).stdout == "", "the host's name servers are visible"
        assert "localhost" in (await box.run("cat /etc/hosts")).stdout


async def test_loopback_works(harness: DockerHarness) -> None:
    async with sandbox(harness) as box:
        script = "import socket as s; l = s.create_server(('127.0.0.1', 0)); s.create_connection(l.getsockname())"
        result = await box.run(f'python3 -c "{script}; print(1)"')
        assert result.stdout == "1\n", result


async def test_clone3_looks_as_on_an_older_kernel(harness: DockerHarness) -> None:
    """So that libc falls back; with EPERM no program could start a thread."""
    async with sandbox(harness) as box:
        result = await box.run(f"python3 -c '{CLONE3}'")
        assert result.stdout == ENOSYS, result


async def test_who_commands_are_on_the_host(harness: DockerHarness) -> None:
    driver = await harness.make_driver()
    base = driver.root_id
    async with sandbox(harness) as box:
        owner = Path(f"/proc/{harness.docker.pid_of(box.handle)}").stat().st_uid
        assert owner == (os.geteuid() if base is None else base + 1000)
        assert (await box.run("id -u; touch ~/mine; stat -c %u ~/mine")).stdout.split() == [
            str(owner - (base or 0)),
        ] * 2


async def test_a_full_network_comes_back_with_the_sandbox(harness: DockerHarness) -> None:
    driver = await harness.make_driver()
    if Network.FULL not in driver.capabilities.networks:
        pytest.skip(driver.capabilities.network_remedy)
    async with sandbox(harness, network=Network.FULL) as box:
        for _ in range(2):
            assert "tap0" in (await box.run("cat /proc/net/dev")).stdout
            assert (await box.run("cat /etc/resolv.conf")).stdout == "nameserver 10.0.2.3\n"
            await box.driver.stop(box.handle)
            await box.driver.start(box.handle)
            await eventually(lambda: pings(box, 1), "the runner is back")


async def test_without_docker_doctor_says_what_to_do(tmp_path: Path) -> None:
    for host in (f"unix://{tmp_path}/nobody.sock", "tcp://127.0.0.1:1"):
        failed = [check for check in await DockerDriver(tmp_path, host=host).check() if not check.ok]
        assert [check.name for check in failed] == ["docker"]
        assert "docker_host" in failed[0].remedy
