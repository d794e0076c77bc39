"""Copying large files on real file systems: those that share blocks, those that do not, and full ones."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drivers.disk.file_copy import copy_file
from support.machine.loops import mounted

DATA = os.urandom(1 << 20)
SIZE = 64 << 20


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    top = tmp_path / "full"
    top.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", top], check=True)
    try:
        yield top
    finally:
        subprocess.run(["umount", top], check=True)


def fill(path: Path) -> Path:
    """Data at the start, in the middle and at the end, with holes between."""
    with path.open("wb") as file:
        file.truncate(SIZE)
        for place in (0, SIZE // 2, SIZE - len(DATA)):
            file.seek(place)
            file.write(DATA)
        os.fsync(file.fileno())
    return path


def free(path: Path) -> int:
    os.sync()
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path, kind: str) -> None:
    with mounted(kind, tmp_path, 512) as top:
        (top / "source").write_bytes(DATA * 64)
        before = free(top)
        copy_file(top / "source", top / "copy.img")
        assert before - free(top) < 8 << 20, "64 MB were copied"
        with (top / "copy.img").open("r+b") as file:
            file.write(b"changed")
        assert (top / "source").read_bytes() == DATA * 64, "who writes to the copy writes to the source"
        assert (top / "copy.img").read_bytes() == b"changed" + (DATA * 64)[7:]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_holes_stay_holes_from_one_file_system_to_another(tmp_path: Path, kind: str) -> None:
    source = fill(tmp_path / "source")
    with mounted(kind, tmp_path, 512) as top:
        copy_file(source, top / "copy.img")
        assert (top / "copy.img").read_bytes() == source.read_bytes()
        assert (top / "copy.img").stat().st_blocks * 512 < 8 << 20
        assert (top / "copy.img").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("check_room", [True, False], ids=["beforehand", "half-way"])
def test_without_room_nothing_is_left(tmp_path: Path, full: Path, check_room: bool) -> None:
    (tmp_path / "source").write_bytes(DATA * 16)
    with pytest.raises(OSError) as caught:
        copy_file(tmp_path / "source", full / "copy.img", check_room=check_room)
    assert caught.value.errno == errno.ENOSPC
    assert list(full.iterdir()) == []
