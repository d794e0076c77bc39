"""File systems of a test's own, by loop; root only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MKFS = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"), "btrfs": ("mkfs.btrfs", "-q")}
_PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}


@contextmanager
def mounted(kind: str, directory: Path, size_mb: int) -> Iterator[Path]:
    """A new file system of this kind, mounted below ``directory``. Skips the test where it cannot be had."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")
    if kind not in Path("/proc/filesystems").read_text().split():
        pytest.skip(f"this kernel has no {kind}")
    if shutil.which(_MKFS[kind][0]) is None:
        pytest.skip(f"{_MKFS[kind][0]} is not installed; apt-get install {_PACKAGES[kind]}")
    image, top = directory / f"{kind}.img", directory / kind
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    subprocess.run([*_MKFS[kind], image], check=True)
    top.mkdir()
    subprocess.run(["mount", "-o", "loop", image, top], check=True)
    try:
        yield top
    finally:
        subprocess.run(["umount", "--lazy", top], check=True)
        image.unlink()
