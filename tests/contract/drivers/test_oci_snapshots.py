"""What is special about snapshots of the oci driver's disks: clean file systems, shared blocks, daemons that die."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contract.drivers.test_oci import OciHarness
from holdfast.drivers.conformance.harness import SandboxUnderTest, eventually, read, sandbox, write
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.machine import examine
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from support.machine.loops import mounted
from support.machine.state_dir import open_state_dir, unmount_below

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: without it there are no disks by loop"),
]

FILE = "/workspace/file"
CHURN = "while :; do mkdir d; head -c 300K /dev/urandom > d/f; mv d/f f; sync f; rm -r d; done >/dev/null 2>&1 &"

# A daemon that is killed in the middle of a snapshot: argv is the function it dies in, and what it needs to know.
DYING_DAEMON = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.drivers.disk import disk, snapshot_place
from holdfast.drivers.oci.driver import OciDriver

dies_in, state_dir, runtime, handle, to = sys.argv[1:]
module, _, name = dies_in.partition(".")
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
setattr({"disk": disk, "snapshot_place": snapshot_place}[module], name, die)

async def main():
    driver = OciDriver(Path(state_dir), runtime=runtime)
    await driver.prepare()
    await driver.snapshot(handle, Path(to))

asyncio.run(main())
"""


@asynccontextmanager
async def harness_in(root: Path) -> AsyncIterator[OciHarness]:
    root.chmod(0o711)
    try:
        store = ImageStore(root / "images", id_base=ID_BASE)
        bundles = root / "bundles"
        bundles.mkdir()
        harness = OciHarness(root, (await examine(None)).runtime, await store.resolve("host"), bundles)
        try:
            driver = await harness.make_driver()
        except RuntimeUnavailable as reason:
            pytest.skip(str(reason))
        if not driver.capabilities.disk_limit:
            pytest.skip("there are no disks by loop here")
        yield harness
    finally:
        unmount_below(root)


@pytest.fixture
def root() -> Iterator[Path]:
    with open_state_dir() as root:
        yield root


@pytest.fixture
async def harness(root: Path) -> AsyncIterator[OciHarness]:
    async with harness_in(root) as harness:
        yield harness


async def test_a_snapshot_of_a_busy_disk_is_a_clean_file_system(harness: OciHarness) -> None:
    async with sandbox(harness) as box:
        await box.run(CHURN)
        for number in range(3):
            await eventually(lambda: _has(box, "f"), "it writes")
            place = harness.keep_dir() / str(number)
            await box.driver.snapshot(box.handle, place)
            await asyncio.to_thread(_assert_clean, place / "disk.img")


async def _has(box: SandboxUnderTest, name: str) -> bool:
    return (await box.run(f"[ -e {name} ]")).exit_code == 0


def _assert_clean(image: Path) -> None:
    """Whole, and nothing in its journal is left to do. Changes nothing."""
    checked = subprocess.run(["e2fsck", "-f", "-n", image], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    described = subprocess.run(["dumpe2fs", "-h", image], capture_output=True, text=True, check=True).stdout
    assert "has_journal" in described
    assert "needs_recovery" not in described


async def test_blocks_are_shared_where_the_hosts_file_system_can(root: Path) -> None:
    with mounted("xfs", root, 600) as top:
        async with harness_in(top) as harness, sandbox(harness) as box:
            await box.run("head -c 40M /dev/urandom > large; cksum < large > sum; sync")
            before = await asyncio.to_thread(_free, top)
            place = harness.keep_dir() / "one"
            await box.driver.snapshot(box.handle, place)
            assert before - await asyncio.to_thread(_free, top) < 8 << 20, "40 MB were copied"
            await box.run("head -c 40M /dev/zero > large")
            async with sandbox(harness, place) as child:
                assert (await child.run("cksum < large | cmp - sum")).exit_code == 0


def _free(path: Path) -> int:
    os.sync()
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize


@pytest.mark.parametrize("dies_in", ["disk.copy_file", "snapshot_place.finish"])
async def test_a_daemon_that_is_killed_leaves_half_and_a_sandbox_that_goes_on(
    harness: OciHarness, dies_in: str
) -> None:
    place = harness.keep_dir() / "one"
    async with sandbox(harness) as box:
        await write(box, FILE, b"before")
        arguments = [dies_in, str(harness.state_dir), harness.runtime, box.handle, str(place)]
        await asyncio.to_thread(_run_dying_daemon, arguments)
        await write(box, FILE, b"after")
        assert not place.exists(), "half a snapshot is taken for a whole one"
        assert place.with_name("one.new").exists()
        await box.driver.snapshot(box.handle, place)
        async with sandbox(harness, place) as child:
            assert await read(child, FILE) == b"after"
        await box.driver.forget_snapshot(place)
        assert list(harness.keep_dir().iterdir()) == []


def _run_dying_daemon(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", DYING_DAEMON, *arguments], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
