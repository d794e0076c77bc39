"""Where a snapshot is written: beside its name until it is complete, then under it by one rename. All of it blocks."""

import os
from pathlib import Path

from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.errors import DriverConflict


def scratch_of(place: Path) -> Path:
    """Where it is until it is complete. What is found there later was cut off."""
    return place.with_name(f"{place.name}.new")


def begin(place: Path) -> Path:
    """An empty directory to write to; half of an earlier try is removed. Raises ``DriverConflict`` and OSError."""
    if os.path.lexists(place):
        raise DriverConflict(f"there is a snapshot in {place} already; forget it first")
    scratch = scratch_of(place)
    remove_tree(scratch)
    scratch.mkdir(mode=0o700)
    return scratch


def finish(place: Path, *, lasting: bool) -> None:
    """What is in the scratch directory is complete, and flushed but for what lies right in it."""
    scratch = scratch_of(place)
    if lasting:
        for path in (*scratch.glob("*.json"), *(path for path in scratch.iterdir() if path.is_dir()), scratch):
            flush(path)
    scratch.rename(place)
    if lasting:
        flush(place.parent)


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(place: Path) -> None:
    """All of it, whole or half. It is half at once: what is cut off in the middle is never taken for a snapshot."""
    scratch = scratch_of(place)
    if os.path.lexists(place):
        remove_tree(scratch)
        place.rename(scratch)
    remove_tree(scratch)
