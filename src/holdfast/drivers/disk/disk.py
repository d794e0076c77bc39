"""A session's writable disk.

As root it is a file system in a sparse file, mounted with a loop device: this gives a hard limit in bytes on any host
file system, and leaves only one file to clean up. Without loop devices (rootless) it is a plain directory without a
limit.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import structlog

from holdfast.drivers.blocking import run_at_length
from holdfast.drivers.commands import finish_despite_cancel, run
from holdfast.drivers.disk import snapshot_place, standstill
from holdfast.drivers.disk.file_copy import copy_file
from holdfast.drivers.disk.tree_copy import copy_tree
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux.mounts import is_mounted
from holdfast.errors import DriverTransient, SnapshotBroken

log = structlog.get_logger(__name__)

_STATE_AT, _ERRORS = 1024 + 0x3A, 2
"""The offset of the state in an ext4 superblock, and the flag that is set there after an error."""
_FITRIM = 0xC0185879
_WORTH_TRIMMING = 16 << 20
"""Below this, trimming is not worth its milliseconds. The file also has the file system's own tables, which do not
count as used."""
_SECONDS = 30.0
_GROW_SECONDS = 300.0
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
    """One session's disk, under ``home``: ``disk.img`` and the directory ``disk`` where it is mounted."""

    def __init__(self, home: Path, *, limited: bool) -> None:
        self._file = home / "disk.img"
        self.path = home / "disk"
        self._limited = limited

    async def create(self, template: Path | None) -> None:
        """Create and mount an empty disk. ``template`` is an empty file system of the wanted size."""
        if await asyncio.to_thread(self._prepare, template):
            await self._mount()

    async def load(self, source: Path, size_mb: int, *, consume: bool) -> None:
        """Create and mount a disk from what ``save`` wrote, and grow it if it is smaller than ``size_mb``.

        ``consume`` means that the source itself may be used instead of a copy.
        """
        await asyncio.to_thread(self._check_source, source)
        if not self._limited:
            await run_at_length(copy_tree, source / self.path.name, self.path)
            return
        if await run_at_length(self._load, source, size_mb, consume) < size_mb:
            await finish_despite_cancel(self._grow(size_mb))
        await self._mount()

    def _check_source(self, source: Path) -> None:
        """Refuse a source that is neither a file nor a folder: it may come from another host or a backup, and a link
        would lead elsewhere."""
        name, is_right = (self._file.name, stat.S_ISREG) if self._limited else (self.path.name, stat.S_ISDIR)
        try:
            found = (source / name).lstat()
        except FileNotFoundError:
            raise SnapshotBroken(f"the snapshot in {source} has no {name}; take it again") from None
        if not is_right(found.st_mode) or source.is_symlink():
            raise SnapshotBroken(f"the snapshot in {source} is not to be trusted: its {name} is not what it should be")

    def _load(self, source: Path, size_mb: int, consume: bool) -> int:
        """Copy or move the source to its place, and return its size in MB."""
        self._make_mount_point()
        saved = source / self._file.name
        if consume and saved.stat().st_size >= size_mb << 20:
            with contextlib.suppress(OSError):  # another file system
                os.link(saved, self._file, follow_symlinks=False)
                return size_mb
        copy_file(saved, self._file)
        return self._file.stat().st_size >> 20

    async def _grow(self, size_mb: int) -> None:
        """Grow the file system while it is not mounted; growing a mounted one needs a right that containers lack."""
        await asyncio.to_thread(os.truncate, self._file, size_mb << 20)
        # Forced: it wants a check after each mount. It refuses what has a journal to replay, which a check does.
        done = await run("resize2fs", "-f", str(self._file), timeout=_GROW_SECONDS)
        if not done.ok:
            await run("e2fsck", "-f", "-p", str(self._file), timeout=_GROW_SECONDS)
            done = await run("resize2fs", "-f", str(self._file), timeout=_GROW_SECONDS)
        if not done.ok:
            raise DriverTransient(f"cannot make {self._file} larger: {done.complaint()}")

    def save(self, to: Path) -> None:
        """Copy its content to the directory ``to``, while nothing writes to it. Raises OSError. This blocks."""
        if self._limited:
            copy_file(self._file, to / self._file.name)
        else:
            copy_tree(self.path, to / self.path.name)

    def trim(self) -> None:
        """Give unused blocks back to the host, if there are enough of them. This blocks.

        Until then the blocks of deleted files stay in the file, and every copy of it would contain them.
        """
        used, _ = self.usage()
        if used is None or self._file.stat().st_blocks * 512 - used < _WORTH_TRIMMING:
            return
        try:
            standstill.sync(self.path)  # blocks are free only when what has freed them is written down
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _FITRIM, struct.pack("QQQ", 0, 2**64 - 1, 0))
            finally:
                os.close(descriptor)
        except OSError as error:  # the host's file system cannot, or the disk takes no writes any more
            log.info("disk.trim.failed", file=str(self._file), error=error.strerror)

    def flush(self, saved: Path) -> None:
        """Write what ``save`` has copied to the device, so that it survives a crash of the host. Raises OSError. This
        blocks."""
        if self._limited:
            snapshot_place.flush(saved / self._file.name)
        else:
            standstill.sync(saved)

    async def mount(self) -> None:
        """Mount the disk again, with all that is in it."""
        if self._limited and not await asyncio.to_thread(self.mounted):
            if await asyncio.to_thread(self._has_errors):
                await finish_despite_cancel(self._mend())
            await self._mount()

    def _has_errors(self) -> bool:
        """Say whether the kernel has noted a failed write in the superblock."""
        with self._file.open("rb") as file:
            file.seek(_STATE_AT)
            return bool(int.from_bytes(file.read(2), "little") & _ERRORS)

    async def _mend(self) -> None:
        """Repair what can be repaired without asking; the kernel mounts the rest as it is."""
        done = await run("e2fsck", "-p", str(self._file), timeout=_GROW_SECONDS)
        log.warning("disk.checked", file=str(self._file), status=done.status)

    async def _mount(self) -> None:
        # The file system itself says what to do about its errors, and may say that the host shall stop.
        options = "loop,nosuid,nodev,noatime,errors=remount-ro"
        if not await asyncio.to_thread(self._is_plain):
            raise DriverTransient(f"{self._file} is no regular file; it is not mounted")
        done = await run("mount", "-t", "ext4", "-o", options, str(self._file), str(self.path), timeout=_SECONDS)
        if not done.ok:
            raise DriverTransient(f"cannot mount {self._file}: {done.complaint()}")
        await asyncio.to_thread(self.path.chmod, 0o711)

    def _is_plain(self) -> bool:
        return stat.S_ISREG(self._file.lstat().st_mode)

    def _prepare(self, template: Path | None) -> bool:
        """Create the file and the mount point, and return whether there is something to mount."""
        self._make_mount_point()
        if not self._limited:
            return False
        assert template is not None
        if not self._file.exists():
            copy_file(template, self._file)
        return not self.mounted()

    def _make_mount_point(self) -> None:
        self.path.mkdir(exist_ok=True)
        self.path.chmod(0o711)

    def mounted(self) -> bool:
        return is_mounted(self.path)

    def usage(self) -> tuple[int | None, int | None]:
        """Return the used bytes and the size in bytes; None if it is a plain directory."""
        if not self._limited or self.path.stat().st_dev == self.path.parent.stat().st_dev:
            return None, None  # the look-up in mountinfo would grow with the number of sessions
        found = os.statvfs(self.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_blocks * found.f_frsize

    def allocated(self) -> int:
        """Return the bytes that its file takes of the host's disk. Raises OSError."""
        return self._file.stat().st_blocks * 512

    @property
    def size_mb(self) -> int | None:
        """Its size; None if it is a plain directory."""
        return self._file.stat().st_size >> 20 if self._limited else None

    async def unmount(self) -> None:
        """Write everything out and unmount; the file stays. Raises if something still uses it."""
        if await asyncio.to_thread(self.mounted):
            await asyncio.to_thread(standstill.thaw, self.path)
            await asyncio.to_thread(self.trim)
            # Somebody who has just made a mount namespace holds it there, and then to unmount writes nothing out.
            with contextlib.suppress(OSError):  # it takes no writes any more
                await asyncio.to_thread(standstill.sync, self.path)
            done = await run("umount", str(self.path), timeout=_SECONDS)
            if not done.ok and await asyncio.to_thread(self.mounted):
                raise DriverTransient(f"cannot unmount {self.path}: {done.complaint()}")

    async def detach(self) -> None:
        """Unmount at once, even if a process still has open files there. The file stays."""
        while await asyncio.to_thread(self.mounted):
            # One that stays frozen would never be let go of, though nobody could see it any more.
            await asyncio.to_thread(standstill.thaw, self.path)
            done = await run("umount", "--lazy", str(self.path), timeout=_SECONDS)
            if not done.ok and await asyncio.to_thread(self.mounted):
                raise DriverTransient(f"cannot unmount {self.path}: {done.complaint()}")

    async def remove(self) -> None:
        """Unmount and delete."""
        await self.detach()
        await run_at_length(self._remove_files)

    def _remove_files(self) -> None:
        self._file.unlink(missing_ok=True)
        remove_tree(self.path)


def make_template(directory: Path, size_mb: int) -> Path:
    """Make an empty file system of this size, once; each session gets a copy, which is ten times faster. This
    blocks."""
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
