"""Measures how much of the host's disk a directory takes."""

import os
from pathlib import Path

_BLOCK = 512


def allocated_bytes(top: Path) -> int:
    """Return the bytes that all files below ``top`` take on its file system. This blocks.

    Links are not followed, holes take nothing, several names of one file count once, and a file that vanishes
    meanwhile is ignored.
    """
    try:
        device = top.lstat().st_dev
    except OSError:
        return 0
    found: dict[int, int] = {}
    left = [top]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    _add(entry, device, found, left)
        except OSError:
            continue
    return sum(found.values())


def _add(entry: "os.DirEntry[str]", device: int, found: dict[int, int], left: list[Path]) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return
    if status.st_dev == device:
        found[status.st_ino] = status.st_blocks * _BLOCK
        if entry.is_dir(follow_symlinks=False):
            left.append(Path(entry.path))
