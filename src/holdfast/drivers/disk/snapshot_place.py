"""Writes snapshots atomically: into a scratch directory beside the final name, then one rename. All of it blocks."""

import os
from pathlib import Path

from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.errors import DriverConflict


def scratch_of(place: Path) -> Path:
    """Return the scratch directory of a snapshot. If it exists later, that snapshot was cut off."""
    return place.with_name(f"{place.name}.new")


def begin(place: Path) -> Path:
    """Make an empty directory to write to, in place of an earlier attempt. Raises ``DriverConflict`` and OSError."""
    if os.path.lexists(place):
        raise DriverConflict(f"there is a snapshot in {place} already; forget it first")
    scratch = scratch_of(place)
    remove_tree(scratch)
    scratch.mkdir(mode=0o700)
    return scratch


def finish(place: Path, *, lasting: bool) -> None:
    """Give the snapshot its name. It is complete, and flushed but for the files directly in the scratch directory."""
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
    """Remove a snapshot, complete or not. It loses its name first, so that a part of it is never taken for a
    snapshot."""
    scratch = scratch_of(place)
    if os.path.lexists(place):
        remove_tree(scratch)
        place.rename(scratch)
    remove_tree(scratch)
