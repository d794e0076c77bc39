"""The oci driver with gVisor, on real sandboxes. A selection of the suite; all of it with ``TEST_WHOLE_SUITE=1``."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

import pytest

from contract.drivers.test_oci import OciHarness
from holdfast.drivers.base import SandboxState
from holdfast.drivers.conformance import DriverConformance, DriverHarness
from holdfast.drivers.conformance.harness import PATIENCE_SECONDS, eventually, read, sandbox, write
from holdfast.drivers.conformance.isolation import NOTHING, cell
from holdfast.drivers.conformance.limits import MEMORY_MB, PIDS, limited
from holdfast.drivers.conformance.memory import bring_back, put_away
from holdfast.drivers.disk.tree_copy import copy_tree
from holdfast.drivers.oci import memory
from holdfast.drivers.oci.config import ID_BASE
from holdfast.errors import DriverQuota, RuntimeUnavailable, Unavailable
from holdfast.images.store import ImageStore
from support.machine.call_conformance import SystemCallConformance
from support.machine.earlier import check_adoption
from support.machine.places import made
from support.machine.state_dir import open_state_dir

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """Where the runtime bundle and the image are that all tests use."""
    with open_state_dir() as root:
        (root / "bundles").mkdir()
        yield root


class GvisorHarness(OciHarness):
    attributes = False


@pytest.fixture
async def harness(shared: Path) -> AsyncIterator[OciHarness]:
    with open_state_dir() as root:
        store = ImageStore(shared / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        harness = GvisorHarness(root, "runsc", await store.resolve("host"), shared / "bundles")
        try:
            await (await harness.make_driver()).close()
        except RuntimeUnavailable as reason:
            raise SkipTest(f"runsc: {reason}") from None  # one line for all tests, unlike pytest.skip
        yield harness


async def test_a_sandbox_of_an_earlier_version_is_adopted(harness: OciHarness) -> None:
    await check_adoption(harness)


class TestGvisor(DriverConformance):
    """What differs: gVisor's kernel and all processes inside are one process of the host."""

    async def test_memory_is_limited(self, harness: DriverHarness) -> None:
        """The host can only end all of it: the sandbox dies, and its end says of what."""
        async with limited(harness, "memory_limit", memory_mb=MEMORY_MB) as box:
            counter = box.driver.oom_counter(box.handle)
            assert counter is not None
            assert counter.read() == 0
            asked = asyncio.create_task(box.run(f"head -c {MEMORY_MB * 4}M /dev/zero | tail -c {MEMORY_MB * 4}M"))

            async def is_dead() -> bool:
                info = await box.driver.inspect(box.handle)
                return info.state is SandboxState.STOPPED and info.oom_killed

            await eventually(is_dead, "four times its memory ends it")
            assert counter.read() >= 1
            assert (await box.driver.stats(box.handle)).oom_kills == counter.read()
            counter.close()
            asked.cancel()

    test_kills_for_want_of_memory_are_counted = test_memory_is_limited

    async def test_memory_held_by_sockets_is_limited(self, harness: DriverHarness) -> None:
        raise SkipTest("what its sockets hold is memory of the sandbox as a whole, whose limit ends all of it")

    async def test_it_is_not_the_first_to_go_when_memory_runs_out(self, harness: DriverHarness) -> None:
        raise SkipTest("its kernel chooses nobody by that number: the host ends the sandbox as a whole")

    async def test_a_fork_bomb_is_contained(self, harness: DriverHarness) -> None:
        """What was killed counts for a moment longer than on Linux; until then commands are refused, and told why."""
        async with limited(harness, "pids_limit", pids=PIDS) as box:
            await box.run("bomb() { bomb | bomb & }; bomb; sleep 1000", timeout_ms=2000)

            async def answers() -> bool:
                try:
                    return (await box.run("echo alive")).stdout == "alive\n"
                except Unavailable:
                    return False

            await eventually(answers, "it answers again")

    async def test_there_are_no_privileges(self, harness: DriverHarness) -> None:
        """gVisor does not show whether there may be new ones; that there are none, ``setuid`` programs show."""
        async with cell(harness) as box:
            for process in ("self", "1"):
                status = await box.run(f"cat /proc/{process}/status")
                fields = dict(line.split(":\t", 1) for line in status.stdout.splitlines() if ":\t" in line)
                assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")} == {NOTHING}, fields
                assert process == "1" or fields["Seccomp"] == "2", "there is no seccomp filter"

    async def test_root_inside_is_nobody_outside(self, harness: DriverHarness) -> None:
        """The mapping is gVisor's and not shown inside; the host sees who has its processes."""
        assert isinstance(harness, OciHarness)
        async with cell(harness) as box:
            pid = int((harness.state_dir / "oci" / box.handle / "init.pid").read_text())
            status = Path(f"/proc/{pid}/status").read_text()
            uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
            assert "0" not in uids, f"gVisor's kernel runs as root of the host: {uids}"

    async def test_a_full_disk_keeps_it_awake(self, harness: DriverHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        """The room is looked for before anything is touched: a checkpoint that fails half-way ends a sandbox."""
        monkeypatch.setattr(memory, "_RESERVE", 1 << 60)
        async with sandbox(harness, needs="memory") as box:
            await box.run("kept=yes")
            with pytest.raises(DriverQuota, match=r"no room for .* of memory"):
                await put_away(box)
            assert (await box.driver.inspect(box.handle)).state is SandboxState.RUNNING
            link = await box.hub.listen(box.spec.session_id, box.spec.token)
            await link.wait_connected(PATIENCE_SECONDS)
            assert (await box.run("echo $kept")).stdout == "yes\n"

    async def test_half_an_image_is_ignored_and_removed(self, harness: OciHarness) -> None:
        async with sandbox(harness, needs="memory") as box:
            await box.driver.stop(box.handle)
            half = harness.state_dir / "oci" / box.handle / "memory.new"
            half.mkdir()
            (half / "checkpoint.img").write_bytes(b"half")
            info = await box.driver.inspect(box.handle)
            assert (info.memory, info.busy) == (False, False)
            assert not await bring_back(box, box.driver)
            assert not half.exists()

    async def test_the_log_of_the_runner_cannot_be_written_to(self, harness: OciHarness) -> None:
        """It lies on the host's disk, without a limit; and gVisor opens to all what PID 1 has open."""
        async with cell(harness) as box:
            log = harness.state_dir / "oci" / box.handle / "runner.log"
            before = log.read_bytes()
            await box.run("for fd in {0..40}; do echo flood > /proc/1/fd/$fd; done")
            assert log.read_bytes() == before

    @pytest.mark.parametrize("writable", [False, True])
    async def test_what_is_masked_is_not_there(self, harness: OciHarness, writable: bool) -> None:
        """gVisor knows no masks: settings of services in the host's directories, and sockets that it would dial."""
        layout, shown = harness.keep_dir() / "layout", made(harness.keep_dir() / "shown")
        await asyncio.to_thread(copy_tree, harness.image.layout, layout)
        (layout / "shown").mkdir()
        (made(shown / "etc") / "npmrc").write_text("of the host")
        (shown / "open").write_text("for all")
        (shown / "link").symlink_to("open")
        masked = [f"/shown/{name}" for name in ("etc", "door", "link", "gone/far")]
        image = replace(harness.image, layout=layout, binds={**harness.image.binds, "/shown": shown}, masked=masked)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(shown / "door"))
            (shown / "door").chmod(0o777)
            door.listen()
            async with cell(harness, image=image, writable_root=writable) as box:
                seen = await box.run("cat /shown/etc/npmrc; echo /shown/etc/*; cat /shown/open")
                assert seen.stdout == "/shown/etc/*\nfor all", seen
                dial = "import socket; socket.socket(socket.AF_UNIX).connect('/shown/door')"
                assert (await box.run(f'python3 -c "{dial}"')).exit_code != 0, "a socket of the host answers"

    async def test_no_name_in_an_image_is_taken_for_a_directory_of_the_host(
        self, harness: OciHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The host's overlay takes a list of directories, and they may be relative ones."""
        layout, near = harness.keep_dir() / "layout", made(harness.keep_dir() / "near")
        await asyncio.to_thread(copy_tree, harness.image.layout, layout)
        names = ("a", "a:near", "a,lowerdir=near")
        for name in names:
            made(layout / name)
        (near / "file").write_text("of the host")
        monkeypatch.chdir(near.parent)
        async with cell(harness, image=replace(harness.image, layout=layout), writable_root=True) as box:
            for name in names:
                assert await read(box, f"/{name}/file") is None, name

    async def test_a_link_in_its_root_leads_no_layer_to_the_host(self, harness: OciHarness) -> None:
        """The host mounts the layers. A name that one image has and another has not is the session's own meanwhile."""
        layout = harness.keep_dir() / "layout"
        await asyncio.to_thread(copy_tree, harness.image.layout, layout)
        (layout / "extra").mkdir()
        os.chown(layout / "extra", ID_BASE, ID_BASE)
        more, bait = replace(harness.image, name="more", layout=layout), made(harness.keep_dir() / "bait")
        shutil.copy(shutil.which(harness.runtime) or "", bait / "runsc")
        harness.runtime = str(bait / "runsc")
        snapshots = [harness.keep_dir() / name for name in ("with", "without")]
        forged = f"#!/bin/sh\ntouch {bait}.taken\nexit 1\n".encode()
        async with cell(harness, writable_root=True, image=more) as box:
            await write(box, "/extra/runsc", forged)
            assert (await box.run("chmod 755 /extra/runsc")).exit_code == 0
            await box.driver.snapshot(box.handle, snapshots[0])
        async with sandbox(harness, snapshots[0], writable_root=True) as box:
            assert (await box.run(f"rmdir /extra && ln -s {bait} /extra")).exit_code == 0
            await box.driver.snapshot(box.handle, snapshots[1])
        try:
            async with sandbox(harness, snapshots[1], writable_root=True, image=more) as box:
                assert await read(box, "/extra/runsc") == forged, "its layer is not where the image has it"
        finally:
            assert not bait.with_suffix(".taken").exists(), "the host has run a file of the sandbox's as its runtime"


QUICK = {
    "test_no_name_in_an_image_is_taken_for_a_directory_of_the_host",
    "test_the_same_id_in_another_state_directory_is_another_sandbox",
    "test_what_is_masked_is_not_there",
    "test_the_log_of_the_runner_cannot_be_written_to",
    "test_a_link_in_its_root_leads_no_layer_to_the_host",
    "test_no_signal_from_inside_ends_it",
    "test_it_cannot_be_read_changed_or_limited",
    "test_what_was_put_on_disk_goes_on",
    "test_its_memory_can_be_given_up",
    "test_nothing_of_it_runs_meanwhile",
    "test_a_full_disk_keeps_it_awake",
    "test_half_an_image_is_ignored_and_removed",
    "test_who_is_busy_does_not_hang_up",
    "test_what_is_paused_stands_still_and_goes_on",
    "test_processes_are_limited",
    "test_memory_is_limited",
    "test_there_is_no_network",
    "test_there_are_no_privileges",
    "test_a_writable_root_can_be_written_and_is_the_sessions_own",
}
"""What differs most from the other runtimes. Setting a name to None hides the test that is inherited."""

if not os.environ.get("TEST_WHOLE_SUITE"):
    for inherited in [name for name in dir(TestGvisor) if name.startswith("test_") and name not in QUICK]:
        setattr(TestGvisor, inherited, None)


class TestSystemCalls(SystemCallConformance):
    own_kernel = True
    unlisted = frozenset({"ENOSYS", "EPERM"})
