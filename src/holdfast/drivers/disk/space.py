"""The writable disks of one sandbox: its own disk and, if ``/workspace`` is on another one, that too.

    <home>/disk.img, disk     its own disk
           workspace          none: ``/workspace`` is on the own disk; a link: to a named workspace; a directory: a disk
                              of the sandbox's own, in a sandbox that was restored from one with a named workspace
           memory             its processes, if they are on disk
           snapshot.json      the metadata for a snapshot of it

A snapshot has the same layout, without any link. The drivers that keep files on this host share this.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.drivers.base import DiskUse, Driver, SandboxSpec
from holdfast.drivers.blocking import run_at_length, run_to_the_end
from holdfast.drivers.disk import snapshot_place, standstill
from holdfast.drivers.disk.disk import Disk, make_template
from holdfast.drivers.disk.file_copy import no_room
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.disk.workspace import Ownership, Workspace
from holdfast.drivers.linux import mounts
from holdfast.drivers.oci.memory import MemoryImage
from holdfast.errors import DriverQuota, DriverTransient, DriverUnsupported, SnapshotBroken

_WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Spaces:
    """The properties that all sandboxes of a driver share: whether disks have limits, and which id must get in."""

    homes: Path
    limited: bool
    root_id: int | None

    def of(self, home: Path) -> "Space":
        return Space(home, self)

    def open_to_root(self, directory: Path) -> None:
        """Open to the owner and to the sandboxes' root on its way in; other users of the host cannot enter."""
        if self.root_id is not None:
            os.chown(directory, 0, self.root_id)
            directory.chmod(0o710)

    def thaw_all(self) -> None:
        """Thaw all disks, in case a daemon and its guard were killed in the middle of a snapshot. Raises OSError. This
        blocks."""
        for home in self._limited_homes():
            self.of(home).thaw()

    def trim(self) -> None:
        """Give the unused blocks of all sandboxes back to the host. Raises OSError. This may block for seconds."""
        for home in self._limited_homes():
            with contextlib.suppress(FileNotFoundError):  # destroyed meanwhile
                self.of(home).trim()

    def use(self) -> dict[str, DiskUse]:
        """The disk use of all sandboxes with mounted disks; empty if disks are plain directories. Raises OSError. This
        blocks."""
        found: dict[str, DiskUse] = {}
        for home in self._limited_homes():
            with contextlib.suppress(FileNotFoundError):  # half made, or destroyed meanwhile
                use = self.of(home).use()
                found |= {} if use is None else {home.name: use}
        return found

    def read_only(self) -> Sequence[str]:
        """Return the sandboxes whose disks the kernel has made read-only. Raises OSError. This blocks."""
        broken = mounts.read_only() if self.limited else frozenset()
        homes = self._limited_homes() if broken else ()
        return [home.name for home in homes if any(str(path) in broken for path in self.of(home).disk_paths())]

    def _limited_homes(self) -> Sequence[Path]:
        """Return the directories of all sandboxes, if their disks have limits."""
        with os.scandir(self.homes) as entries:
            return [Path(entry.path) for entry in entries if self.limited and entry.name.startswith("ses_")]


class Space:
    """The disks of one sandbox, below its ``home``, which exists."""

    def __init__(self, home: Path, spaces: Spaces) -> None:
        self._home = home
        self._all = spaces
        self._link = home / _WORKSPACE
        self.disk = Disk(home, limited=spaces.limited)

    def workspace(self) -> Path:
        """Return the directory that is shown as ``/workspace``. Like every method here that is not async, it blocks."""
        return self._disks()[-1].path / _WORKSPACE

    def disk_paths(self) -> Sequence[Path]:
        """Return the directories where its disks are mounted."""
        return [disk.path.absolute() for disk in self._disks()]

    def _disks(self) -> Sequence[Disk]:
        if not os.path.lexists(self._link):
            return [self.disk]
        return [self.disk, Disk(self._link.resolve(), limited=self._all.limited)]

    # -- making --------------------------------------------------------------------------------------------------------

    def make_home(self) -> None:
        """Open to the owner and to the sandbox's own root on its way in; other users of the host cannot enter."""
        self._home.mkdir(mode=0o700)
        self._all.open_to_root(self._home)

    def lay_out(self, owner: int | None) -> None:
        """Make ``/workspace`` and ``/tmp`` for this id of the host; None: for us. What was restored stays as it is."""
        workspace = self.workspace()
        if not workspace.exists():
            # A named one must not be found half made.
            scratch = workspace.with_suffix(".new")
            remove_tree(scratch)  # of a daemon that was killed: it may belong to nobody yet
            make_directory(scratch, owner, 0o755)
            scratch.rename(workspace)
        make_directory(self.disk.path / "tmp", owner, 0o1777)

    async def create(self, spec: SandboxSpec, driver: Driver) -> None:
        """Create and mount empty disks. Raises OSError."""
        await self.disk.create(await self._template(spec.limits.disk_mb))
        if spec.workspace is not None:
            await self._take(spec, spec.workspace)
        await asyncio.to_thread(self._note, spec, driver)

    async def _template(self, size_mb: int) -> Path | None:
        if not self._all.limited:
            return None
        return await asyncio.to_thread(make_template, self._all.homes / "templates", size_mb)

    async def _take(self, spec: SandboxSpec, place: Path) -> None:
        """Claim a named workspace, and then link to it: whatever is linked may be unmounted by this sandbox."""
        workspace = self._named(place)
        await run_to_the_end(self._claim, workspace, spec)
        await workspace.disk.create(await self._template(spec.limits.disk_mb))

    def _claim(self, workspace: Workspace, spec: SandboxSpec) -> None:
        for parent in reversed([parent for parent in workspace.place.parents if not parent.exists()]):
            parent.mkdir(exist_ok=True)
            parent.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
        workspace.place.mkdir(mode=0o700, exist_ok=True)
        self._all.open_to_root(workspace.place)
        workspace.claim(spec.session_id, Ownership(self._all.root_id, self._all.limited, spec.writable_root))
        self._link.symlink_to(workspace.place.absolute())

    def _named(self, place: Path) -> Workspace:
        return Workspace(place, self._all.homes, limited=self._all.limited)

    def _note(self, spec: SandboxSpec, driver: Driver) -> None:
        size_mb = self.disk.size_mb or spec.limits.disk_mb
        facts = SnapshotFacts(
            driver.name, spec.image.name, size_mb, spec.writable_root, driver.root_id, self._all.limited
        )
        facts.write(self._home)

    async def restore(self, spec: SandboxSpec, driver: Driver, source: Path, *, consume: bool) -> None:
        """Create and mount disks with the files of a snapshot. Raises OSError."""
        size_mb = spec.limits.disk_mb
        await self.disk.load(source, size_mb, consume=consume)
        if spec.workspace is not None:
            await self._take(spec, spec.workspace)
        elif await asyncio.to_thread(os.path.lexists, source / _WORKSPACE):
            await asyncio.to_thread(self._make_own_workspace)
            await Disk(self._link, limited=self._all.limited).load(source / _WORKSPACE, 0, consume=consume)
        kept = MemoryImage(source)
        if await asyncio.to_thread(kept.exists):
            await asyncio.to_thread(kept.copy_to, self._home)
        await asyncio.to_thread(self._note, spec, driver)

    def _make_own_workspace(self) -> None:
        self._link.mkdir(mode=0o700)
        self._all.open_to_root(self._link)

    # -- using and removing --------------------------------------------------------------------------------------------

    async def mount(self) -> None:
        for disk in await asyncio.to_thread(self._disks):
            await disk.mount()

    async def unmount(self) -> None:
        """Unmount all disks, also the named workspace, which this sandbox keeps. Raises if something still uses one."""
        for disk in reversed(await asyncio.to_thread(self._disks)):
            await disk.unmount()

    async def remove(self) -> None:
        """Remove all disks but a named workspace, which is released. The home itself stays. Raises OSError."""
        workspace = await asyncio.to_thread(self._own_workspace)
        if isinstance(workspace, Workspace):
            await workspace.disk.detach()
            await asyncio.to_thread(workspace.release, self._home.name)
        elif workspace is not None:
            await workspace.remove()
        await self.disk.remove()

    def _own_workspace(self) -> Workspace | Disk | None:
        """Return the named workspace, if this sandbox has claimed it, or its own disk for ``/workspace``."""
        if self._link.is_symlink():
            workspace = self._named(self._link.readlink())
            return workspace if workspace.holder() == self._home.name else None
        return Disk(self._link, limited=self._all.limited) if self._link.is_dir() else None

    def usage(self) -> tuple[int | None, int | None]:
        """Return the used bytes and the size of all disks together; None if that of one disk is unknown."""
        used, limits = zip(*(disk.usage() for disk in self._disks()), strict=True)
        return _sum(used), _sum(limits)

    def use(self) -> DiskUse | None:
        """Return the space that it takes of the host's disk; None while it is not mounted. Raises OSError."""
        disks = self._disks()
        used = _sum([disk.usage()[0] for disk in disks])
        return None if used is None else DiskUse(sum(disk.allocated() for disk in disks), used)

    def trim(self) -> None:
        for disk in self._disks():
            disk.trim()

    def thaw(self) -> None:
        for disk in self._disks():
            standstill.thaw(disk.path)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    async def snapshot(self, to: Path, *, lasting: bool, init: int | None, memory: bool = False) -> None:
        """Write a snapshot with all files as of one moment.

        ``init`` is the sandbox's first process, if it runs; ``memory`` says whether its memory is saved, too.
        """
        try:
            await run_at_length(self._snapshot, to, lasting, init, memory)
        except OSError as error:
            if no_room(error):
                raise DriverQuota(f"there is no room for a snapshot in {to.parent}; make some") from error
            raise DriverTransient(f"cannot write a snapshot to {to}: {error}") from error

    def _snapshot(self, to: Path, lasting: bool, init: int | None, memory: bool) -> None:
        try:
            facts = SnapshotFacts.read(self._home)
        except SnapshotBroken:
            raise DriverUnsupported("this sandbox is half made, or was made by a version without snapshots") from None
        scratch = snapshot_place.begin(to)
        try:
            disks = self._disks()
            places = [scratch, scratch / _WORKSPACE][: len(disks)]
            for place in places[1:]:
                place.mkdir(mode=0o700)
            self.trim()
            with self._standstill(disks, init):
                for disk, place in zip(disks, places, strict=True):
                    disk.save(place)
            if memory:
                MemoryImage(self._home).copy_to(scratch)
            replace(facts, disk_mb=self.disk.size_mb or facts.disk_mb, memory=memory).write(scratch)
            if lasting:
                for disk, place in zip(disks, places, strict=True):
                    disk.flush(place)
            snapshot_place.finish(to, lasting=lasting)
        except BaseException:
            snapshot_place.remove(to)
            raise

    def _standstill(self, disks: Sequence[Disk], init: int | None) -> AbstractContextManager[None]:
        if self._all.limited:
            return standstill.of_file_systems([disk.path for disk in disks if disk.mounted()])
        return standstill.of_processes(init)


def make_directory(path: Path, owner: int | None, mode: int) -> bool:
    """Make a directory, for this id of the host or for us.

    False if there is something already, which is not touched: it may be a link that a sandbox has made.
    """
    try:
        path.mkdir()
    except FileExistsError:
        return False
    if owner is not None:
        os.chown(path, owner, owner)
    path.chmod(mode)
    return True


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
