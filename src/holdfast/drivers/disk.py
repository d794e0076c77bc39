"""A session's writable space.

As root it is a file system of its own in a sparse file, mounted by loop: a hard limit in bytes on any host file system,
and nothing to clean up but one file. Where loop devices are not to be had (rootless), it is a plain directory
without a limit.
"""

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

from holdfast.drivers.commands import run
from holdfast.drivers.mounts import is_mounted
from holdfast.drivers.tree_removal import remove_tree
from holdfast.errors import DriverTransient

_SECONDS = 30.0
_MKFS = (
    "mkfs.ext4",
    "-q",
    "-F",
    "-m0",
    "-O",
    "^resize_inode",
    "-J",
    "size=4",
    "-E",
    "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
)


class Disk:
    """One session's space, under ``home``: ``disk.img`` and the directory ``disk`` where it is mounted."""

    def __init__(self, home: Path, *, limited: bool) -> None:
        self._file = home / "disk.img"
        self.path = home / "disk"
        self._limited = limited

    async def create(self, template: Path | None) -> None:
        """Make it ready to be written to. ``template`` is an empty file system of the wanted size."""
        if await asyncio.to_thread(self._prepare, template):
            await self._mount()

    async def mount(self) -> None:
        """Make one that was unmounted ready again, with all that is in it."""
        if self._limited and not await asyncio.to_thread(self.mounted):
            await self._mount()

    async def _mount(self) -> None:
        options = "loop,nosuid,nodev,noatime"
        done = await run("mount", "-t", "ext4", "-o", options, str(self._file), str(self.path), timeout=_SECONDS)
        if not done.ok:
            raise DriverTransient(f"cannot mount {self._file}: {done.complaint()}")
        await asyncio.to_thread(self.path.chmod, 0o711)

    def _prepare(self, template: Path | None) -> bool:
        """Make what is to be mounted, and where; returns whether it is to be mounted."""
        self.path.mkdir(exist_ok=True)
        self.path.chmod(0o711)
        if not self._limited:
            return False
        assert template is not None
        if not self._file.exists():
            _copy_sparse(template, self._file)
        return not self.mounted()

    def mounted(self) -> bool:
        return is_mounted(self.path)

    def usage(self) -> tuple[int | None, int | None]:
        """How many bytes are used, and how many there are; unknown where it is no file system of its own."""
        if not self._limited or self.path.stat().st_dev == self.path.parent.stat().st_dev:
            return None, None  # the look-up in mountinfo would grow with the number of sessions
        found = os.statvfs(self.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_blocks * found.f_frsize

    async def unmount(self) -> None:
        """Write everything out and let go of it; the file stays. Raises if something still uses it."""
        if await asyncio.to_thread(self.mounted):
            done = await run("umount", str(self.path), timeout=_SECONDS)
            if not done.ok and await asyncio.to_thread(self.mounted):
                raise DriverTransient(f"cannot unmount {self.path}: {done.complaint()}")

    async def remove(self) -> None:
        """Unmount and delete. The mount is detached at once; a straggler's open files cannot hold it."""
        while await asyncio.to_thread(self.mounted):
            done = await run("umount", "--lazy", str(self.path), timeout=_SECONDS)
            if not done.ok and await asyncio.to_thread(self.mounted):
                raise DriverTransient(f"cannot unmount {self.path}: {done.complaint()}")
        await asyncio.to_thread(self._remove_files)

    def _remove_files(self) -> None:
        self._file.unlink(missing_ok=True)
        remove_tree(self.path)


def make_template(directory: Path, size_mb: int) -> Path:
    """An empty file system of this size, made once and copied for each session: copying is ten times faster. Blocks."""
    target = directory / f"empty-{size_mb}.img"
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=f".new-{size_mb}-", dir=directory, delete=False) as scratch:
            scratch.truncate(size_mb << 20)
        try:
            done = subprocess.run([*_MKFS, scratch.name], capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode != 0:
                raise DriverTransient(f"cannot make a file system: {done.stderr.strip() or done.stdout.strip()}")
            Path(scratch.name).rename(target)
        finally:
            Path(scratch.name).unlink(missing_ok=True)
    return target


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy only the blocks that hold something; the name appears when it is complete."""
    scratch = target.with_suffix(".new")
    scratch.touch(mode=0o600)
    with source.open("rb") as reader, scratch.open("r+b") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        position = 0
        while (start := _next_data(reader.fileno(), position, size)) is not None:
            end = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
            os.lseek(reader.fileno(), start, os.SEEK_SET)
            os.lseek(writer.fileno(), start, os.SEEK_SET)
            _copy_range(reader.fileno(), writer.fileno(), end - start)
            position = end
    scratch.rename(target)


def _next_data(fd: int, position: int, size: int) -> int | None:
    if position >= size:
        return None
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError:  # only a hole is left
        return None


def _copy_range(source: int, target: int, count: int) -> None:
    while count > 0:
        data = os.read(source, min(count, 1 << 20))
        if not data:
            return
        os.write(target, data)
        count -= len(data)
