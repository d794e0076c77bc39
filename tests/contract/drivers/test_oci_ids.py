"""As root, each sandbox has host ids of its own, and nothing but its disk is mounted on the host."""

import asyncio
import ctypes
import fcntl
import json
import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.drivers.conformance.harness import SandboxUnderTest, new_spec, open_hub, sandbox, sandboxes, start
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT
from holdfast.drivers.linux.withheld import OF_THIS_HOST
from holdfast.drivers.oci.driver import OciDriver
from holdfast.drivers.oci.id_ranges import IdRanges, Layout
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from support.machine.state_dir import new_state_dir, open_state_dir, remove_state_dir

from .test_oci import OciHarness

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: ids of sandboxes are NOT TESTED"),
]


@pytest.fixture(scope="module")
def kept() -> Iterator[Path]:
    with open_state_dir() as root:
        (root / "bundles").mkdir()
        yield root


@pytest.fixture
async def harness(kept: Path) -> AsyncIterator[OciHarness]:
    with open_state_dir() as root:
        image = await ImageStore(kept / "images", id_base=ID_BASE).resolve("host")
        harness = OciHarness(root, "runc", image, kept / "bundles")
        try:
            driver = await harness.make_driver()
        except RuntimeUnavailable as reason:
            raise SkipTest(str(reason)) from None
        if not driver.capabilities.private_counts:
            raise SkipTest("this kernel cannot show files under other ids")
        yield harness


def init(box: SandboxUnderTest, harness: OciHarness) -> int:
    return int((harness.state_dir / "oci" / box.handle / "init.pid").read_text())


def root_of(pid: int) -> int:
    inside, outside, count = map(int, Path(f"/proc/{pid}/uid_map").read_text().split())
    assert (inside, count) == (0, ID_COUNT)
    return outside


def owner_of(pid: int) -> int:
    """Who has made the process's user namespace."""
    found = ctypes.c_uint()
    with open(f"/proc/{pid}/ns/user") as namespace:
        fcntl.ioctl(namespace, 0xB704, found)
    return found.value


async def test_each_sandbox_has_ids_of_its_own(harness: OciHarness) -> None:
    async with sandboxes(harness, 2) as boxes:
        pids = [init(box, harness) for box in boxes]
        bases = {root_of(pid) for pid in pids}
        assert len(bases) == 2 and ID_BASE not in bases
        owners = {owner_of(pid) for pid in pids}
        assert len(owners) == 2 and 0 not in owners
        assert not [owner for owner in owners if owner >= ID_BASE]
        for box in boxes:
            seen = await box.run("touch mine; stat -c %u:%g mine /usr/bin/env /etc/passwd; cat /proc/self/uid_map")
            assert seen.stdout.split()[:3] == ["1000:1000", "0:0", "0:0"], seen
            limits = await box.run("ulimit -i; ulimit -q; ulimit -c")
            assert limits.stdout.split() == [str(min(16384, own_limit(11))), str(min(819_200, own_limit(12))), "0"]
            disk = harness.state_dir / "oci" / box.handle / "disk" / "workspace" / "mine"
            assert disk.stat().st_uid == ID_BASE + 1000  # whatever the sandbox's ids are


def own_limit(which: int) -> int:
    most = resource.getrlimit(which)[1]
    return most if most >= 0 else 1 << 62


async def test_ids_stay_until_the_end(harness: OciHarness) -> None:
    async with sandbox(harness) as box:
        before = root_of(init(box, harness))
        await box.driver.stop(box.handle)
        another = await harness.make_driver()  # as after a restart
        await another.start(box.handle)
        assert root_of(init(box, harness)) == before
        claims = [path for path in claims_of(harness) if path.readlink().name == box.handle]
        assert len(claims) == 1
    assert not [path for path in claims_of(harness) if path.readlink().name == box.handle]


async def test_another_range_of_ids(harness: OciHarness) -> None:
    """Sessions that were made before the setting start with ids of the new range, and find their files."""
    layout = Layout.within(2_001_000_000, 2_147_352_575)
    async with sandbox(harness) as box:
        await box.run("echo kept > /workspace/file")
        await box.driver.stop(box.handle)
        after = OciDriver(harness.state_dir, runtime="runc", ids=layout)
        await after.prepare()
        await after.start(box.handle)
        await box.link.wait_connected(30)
        assert root_of(init(box, harness)) in layout.spans()[0]
        assert owner_of(init(box, harness)) in layout.spans()[1]
        assert (await box.run("cat /workspace/file; id -u")).stdout == "kept\n1000\n"
        shown = next(path for path in Path("/run/holdfast").glob("ids-*/*") if path.readlink().name == box.handle)
        await after.destroy(box.handle)
        assert not shown.is_symlink()


def claims_of(harness: OciHarness) -> list[Path]:
    home = harness.state_dir / "oci"
    places = [Path("/run/holdfast/ids"), home / "ids"]
    links = [path for place in places if place.is_dir() for path in place.iterdir()]
    return [path for path in links if path.is_symlink() and path.readlink().parent == home]


async def test_ids_of_another_are_not_taken(harness: OciHarness, tmp_path: Path) -> None:
    """As after a restart of the machine, when another session was first."""
    async with sandbox(harness) as box:
        await box.driver.stop(box.handle)
        claim = next(path for path in claims_of(harness) if path.readlink().name == box.handle)
        claim.unlink()
        claim.symlink_to(tmp_path)
        try:
            await box.driver.start(box.handle)
            assert root_of(init(box, harness)) != ID_BASE + (1 + int(claim.name)) * ID_COUNT
            assert claim.readlink() == tmp_path
        finally:
            claim.unlink()


async def test_a_session_of_an_earlier_version_starts_and_gets_ids(harness: OciHarness) -> None:
    async with sandbox(harness, writable_root=True) as box:
        await box.run("echo kept > /workspace/file; echo kept > /usr/local/file")
        await box.driver.stop(box.handle)
        home = harness.state_dir / "oci" / box.handle
        config = json.loads((home / "config.json").read_text())
        for mount in config["mounts"]:
            mount["options"] = [
                option.replace("lowerdir=/usr", f"lowerdir={home.parent}/shifted/usr") for option in mount["options"]
            ]
        (home / "config.json").write_text(json.dumps(config))
        for claim in claims_of(harness):
            claim.unlink()
        (home / "ids").unlink()
        await box.driver.start(box.handle)
        await box.link.wait_connected(30)
        seen = await box.run("cat /workspace/file /usr/local/file; id -u; test -x /usr/bin/env && echo usr")
        assert seen.stdout == "kept\nkept\n0\nusr\n", seen
        assert root_of(init(box, harness)) != ID_BASE


async def test_the_hosts_own_directories_are_mounted_nowhere(harness: OciHarness) -> None:
    before = mounted()
    old = harness.state_dir / "oci" / "shifted" / "usr"  # of an earlier version
    old.mkdir(parents=True)
    await asyncio.to_thread(subprocess.run, ["mount", "--bind", "-o", "ro", "/usr", str(old)], check=True)
    async with sandboxes(harness, 2) as boxes:
        new = {where for where in mounted() - before if str(harness.state_dir) in where or "holdfast" in where}
        homes = [f"{harness.state_dir}/oci/{box.handle}/disk" for box in boxes]
        assert sorted(new) == sorted(homes)
        assert not old.exists()


def mounted() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


async def test_a_socket_that_came_later_is_masked_at_the_next_start(harness: OciHarness) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/usr/local/share") as place:
        Path(place).chmod(0o755)
        async with sandbox(harness) as box:
            await box.driver.stop(box.handle)
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(f"{place}/door")
                OF_THIS_HOST.forget()
                await box.driver.start(box.handle)
                await box.link.wait_connected(30)
                seen = await box.run(f"test -e {place}/door && echo there; test -S {place}/door && echo open")
                assert seen.stdout == "there\n"
    OF_THIS_HOST.forget()


async def test_queues_are_gone_with_the_processes(harness: OciHarness) -> None:
    make = "import ctypes; print(ctypes.CDLL(None).mq_open(b'/left', 0o102, 0o600, None) > 0)"
    async with sandbox(harness) as box:
        made = await box.run(f'python3 -c "{make}"; ls /dev/mqueue')
        if made.exit_code:
            raise SkipTest("the image has no python3")
        assert made.stdout == "True\nleft\n"
        await box.driver.stop(box.handle)
        await box.driver.start(box.handle)
        await box.link.wait_connected(30)
        assert (await box.run("ls /dev/mqueue")).stdout == ""


async def test_a_closed_directory_above_the_state_directory_does_not_matter(kept: Path) -> None:
    root = new_state_dir()
    try:
        (root / "closed").mkdir(0o700)
        image = await ImageStore(root / "closed" / "images", id_base=ID_BASE).resolve("host")
        inner = OciHarness(root / "closed", "runc", image, kept / "bundles")
        shutil.copytree(kept / "bundles", root / "closed" / "bundles", symlinks=True)
        inner._bundles = root / "closed" / "bundles"
        async with open_hub(inner) as hub:
            driver = await inner.make_driver()
            spec = new_spec(inner, hub, writable_root=True)
            box = await start(driver, hub, spec)
            assert (await box.run("cat /etc/passwd | head -1; touch file /etc/x && echo made")).stdout.endswith(
                "made\n"
            )
            await driver.destroy(box.handle)
    finally:
        remove_state_dir(root)


def test_claims_of_what_is_gone_are_given_back(tmp_path: Path) -> None:
    place, gone, there = tmp_path / "ids", tmp_path / "gone", tmp_path / "there"
    for path in (place, gone, there):
        path.mkdir()
    ranges = IdRanges(place)
    first, second = ranges.claim(gone), ranges.claim(there)
    assert first != second
    assert ranges.claim(there) == second
    shutil.rmtree(gone)
    ranges.clean()
    assert [path.name for path in place.iterdir()] == [str(second)]
    ranges.release(there)
    assert not list(place.iterdir())
