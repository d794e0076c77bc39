"""Directories for what daemons and drivers keep: as sandboxes need them, and gone when the test is over."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def new_state_dir() -> Path:
    """Short, because sockets live in it, and open to passers-by, because sandboxes run under other ids."""
    directory = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    directory.chmod(0o711)
    return directory


def remove_state_dir(directory: Path) -> None:
    unmount_below(directory)
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def open_state_dir() -> Iterator[Path]:
    directory = new_state_dir()
    try:
        yield directory
    finally:
        remove_state_dir(directory)


def unmount_below(directory: Path) -> None:
    """Mounts that outlive a daemon on purpose must not outlive the test."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{directory}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
