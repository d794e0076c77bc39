"""Copies a directory that a sandbox has filled, with owners, modes, links, extended attributes and holes. It blocks."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

from holdfast.drivers.disk.allocation import allocated_bytes

_SECONDS = 600.0
_COPY = ("cp", "--archive", "--reflink=auto", "--sparse=auto", "--no-target-directory")


def copy_tree(source: Path, target: Path) -> None:
    """Copy ``source`` to ``target``, which must be new. Blocks are shared if possible. Raises OSError.

    An ordinary user becomes root of a user namespace for it, because a sandbox may have removed its owner's rights to
    some files.
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
