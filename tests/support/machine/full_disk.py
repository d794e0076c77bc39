"""A file system that is small, and full when the test says so: the kernel's own ENOSPC."""

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """Mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def fill_around(self, database: Path) -> None:
        """So that a database in SQLite cannot write anything either: it has room of its own, in its log."""
        with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.fill()

    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def free(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(path: Path, size: str = "4m") -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("NO DISK IS FILLED: only root can mount a small one")
    path.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    failed = subprocess.run(mount, check=False, capture_output=True, text=True)
    if failed.returncode:
        pytest.skip(f"NO DISK IS FILLED: {failed.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
