"""Copying a directory that a sandbox has filled, with owners, modes, links, extended attributes and holes. Blocks."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

from holdfast.drivers.disk.allocation import allocated_bytes

_SECONDS = 600.0
_COPY = ("cp", "--archive", "--reflink=auto", "--sparse=auto", "--no-target-directory")


def copy_tree(source: Path, target: Path) -> None:
    """``target`` is new. Blocks are shared where the file system can do that. Raises OSError.

    An ordinary user becomes root of a user namespace for it: a sandbox may have closed its own files to their owner.
    """
    prefix = ("unshare", "--user", "--map-root-user") if os.geteuid() and shutil.which("unshare") else ()
    try:
        done = subprocess.run(
            [*prefix, *_COPY, source, target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, f"copying {source} took longer than {_SECONDS:.0f} s") from None
    if done.returncode != 0:
        left = allocated_bytes(source) - allocated_bytes(target)
        there = os.statvfs(target.parent)
        if left > there.f_bavail * there.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(errno.EIO, said[-1][:400] if said else f"cp ended with status {done.returncode}")
