"""Disks that somebody else has made: out of a backup, or of a directory that hosts share."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.drivers.disk.disk import Disk
from holdfast.drivers.disk.file_copy import copy_file
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.linux.mounts import is_mounted
from holdfast.errors import DriverTransient, SnapshotBroken

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4"),
]


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    home = tmp_path / "home"
    home.mkdir()
    disk = Disk(home, limited=True)
    yield disk
    await disk.detach()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A snapshot with an empty disk."""
    source = tmp_path / "snapshot"
    source.mkdir()
    with (source / "disk.img").open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", source / "disk.img"], check=True)
    return source


async def _run(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0, argv


def mount_options(path: Path) -> str:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return next(line for line in lines if line.split(" ")[4] == str(path))


@pytest.mark.parametrize("consume", [False, True])
async def test_a_link_to_another_disk(disk: Disk, source: Path, tmp_path: Path, consume: bool) -> None:
    (source / "disk.img").rename(tmp_path / "of-the-host.img")
    (source / "disk.img").symlink_to(tmp_path / "of-the-host.img")
    with pytest.raises(SnapshotBroken, match="not to be trusted"):
        await disk.load(source, 16, consume=consume)
    assert not is_mounted(disk.path)


async def test_a_device_and_a_pipe(disk: Disk, source: Path) -> None:
    (source / "disk.img").unlink()
    os.mknod(source / "disk.img", 0o600 | 0o060000, os.makedev(7, 0))
    with pytest.raises(SnapshotBroken):
        await disk.load(source, 16, consume=False)
    (source / "disk.img").unlink()
    os.mkfifo(source / "disk.img")
    with pytest.raises(OSError, match="no regular file"):
        copy_file(source / "disk.img", source / "copy")
    (source / "disk.img").unlink()
    with pytest.raises(SnapshotBroken, match=r"has no disk\.img"):
        await disk.load(source, 16, consume=False)


async def test_one_that_was_swapped_for_a_link_is_not_mounted(disk: Disk, source: Path, tmp_path: Path) -> None:
    await disk.load(source, 16, consume=False)
    await disk.unmount()
    image = disk.path.with_name("disk.img")
    image.rename(tmp_path / "elsewhere.img")
    image.symlink_to(tmp_path / "elsewhere.img")
    with pytest.raises(DriverTransient, match="not mounted"):
        await disk.mount()


async def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    source = tmp_path / "snapshot"
    source.mkdir()
    (source / "disk").symlink_to("/etc")
    with pytest.raises(SnapshotBroken):
        await Disk(tmp_path, limited=False).load(source, 0, consume=False)
    assert not (tmp_path / "disk").exists()


async def test_one_that_would_stop_the_host_at_an_error(disk: Disk, source: Path) -> None:
    tune = ("tune2fs", "-e", "panic", str(source / "disk.img"))
    await _run(*tune)
    await disk.load(source, 16, consume=False)
    options = mount_options(disk.path)
    assert "errors=panic" not in options and "errors=remount-ro" in options
    assert "nosuid" in options and "nodev" in options


@pytest.mark.parametrize("harm", ["cut", "noise", "nothing"])
async def test_what_is_no_file_system_is_an_error_and_leaves_nothing(disk: Disk, source: Path, harm: str) -> None:
    with (source / "disk.img").open("r+b") as file:
        if harm == "noise":
            file.write(os.urandom(1 << 20))
        else:
            file.truncate(4 << 20 if harm == "cut" else 0)
    with pytest.raises(DriverTransient):
        await disk.load(source, 16, consume=False)
    assert not is_mounted(disk.path)


@pytest.mark.parametrize(
    "change",
    [{"disk_mb": "much"}, {"disk_mb": -1}, {"image": 5}, {"limited": "yes"}, {"root_id": True}, {"driver": 0}],
)
async def test_facts_of_another_kind(tmp_path: Path, change: dict[str, object]) -> None:
    SnapshotFacts("oci", "host", 64, False).write(tmp_path)
    content = json.loads((tmp_path / "snapshot.json").read_text())
    (tmp_path / "snapshot.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(SnapshotBroken):
        SnapshotFacts.read(tmp_path)
