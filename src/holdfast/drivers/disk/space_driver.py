"""The base of all drivers that keep their sandboxes in directories of this host, with their files in a ``Space``."""

import asyncio
import contextlib
import os
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.concurrency import KeyedLocks
from holdfast.drivers.base import (
    DiskUse,
    Driver,
    Handle,
    SandboxSpec,
    SandboxState,
    SandboxStats,
    check_environment,
)
from holdfast.drivers.blocking import run_at_length
from holdfast.drivers.commands import finish_despite_cancel
from holdfast.drivers.disk import snapshot_place
from holdfast.drivers.disk.file_copy import no_room
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.disk.space import Space, Spaces
from holdfast.drivers.disk.workspace import Workspace
from holdfast.errors import DriverConflict, DriverQuota, DriverTransient, DriverUnsupported, SandboxNotFound

FillSpace = Callable[[Space], Awaitable[None]]
"""It fills the space of a new sandbox."""
HANDLE = re.compile(r"ses_[a-z0-9_]{1,60}")
T = TypeVar("T")


class SpaceDriver(Driver):
    """Implements ``create``, ``restore`` and ``destroy``. Each driver has its own ``snapshot``, because it knows the
    sandbox's first process, and what else to save. A handle is the session's id, and the name of a directory in
    ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._locks = KeyedLocks[str]()
        """One is held while a sandbox is changed: two at once would trip over each other's files."""

    @property
    @abstractmethod
    def _spaces(self) -> Spaces:
        """The properties of all spaces; valid after ``prepare``."""

    @abstractmethod
    async def _build(self, spec: SandboxSpec, fill_space: FillSpace) -> None:
        """Make and start a sandbox of which nothing is there; ``fill_space`` provides the content of its space."""

    @abstractmethod
    async def _destroy(self, handle: Handle) -> None:
        """Remove all that there is of a sandbox, while its lock is held."""

    @abstractmethod
    def _stats(self, handle: Handle) -> SandboxStats:
        """Look at what a sandbox uses, in a thread. Raises OSError."""

    def handle_for(self, session_id: str) -> Handle:
        return Handle(session_id)

    def _directory(self, handle: Handle) -> Path:
        """Return the sandbox's directory; never outside our home, whatever somebody takes for a handle."""
        if not HANDLE.fullmatch(handle):
            raise DriverUnsupported(f"{handle[:80]!r} is no handle of the {self.name} driver")
        return self._home / handle

    async def _homes(self) -> Sequence[str]:
        return await self._look(f"read {self._home}", self._session_directories)

    def _session_directories(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self._home) if entry.name.startswith("ses_")]

    async def _look(self, what: str, look: Callable[[], T]) -> T:
        """Look at something in a thread; the error says ``what`` cannot be done."""
        try:
            return await asyncio.to_thread(look)
        except OSError as error:
            raise DriverTransient(f"cannot {what}: {error}") from error

    async def create(self, spec: SandboxSpec) -> Handle:
        return await self._make(spec, lambda space: space.create(spec, self))

    async def restore(self, spec: SandboxSpec, source: Path, *, consume: bool = False) -> Handle:
        facts = await asyncio.to_thread(SnapshotFacts.read, source)
        facts.check(spec, self, limited=self._spaces.limited)
        return await self._make(spec, lambda space: space.restore(spec, self, source, consume=consume))

    async def _make(self, spec: SandboxSpec, fill_space: FillSpace) -> Handle:
        handle = self.handle_for(spec.session_id)
        directory = self._directory(handle)
        check_environment(spec.env)
        async with self._locks.of(handle):
            await self._remove_leftovers(handle)
            try:
                await self._build(spec, fill_space)
            except OSError as error:
                if no_room(error):
                    await finish_despite_cancel(self._destroy(handle))
                    raise DriverQuota(f"there is no room for {handle} in {self._home}; make some") from error
                raise DriverTransient(f"cannot prepare the sandbox in {directory}: {error}") from error
        return handle

    async def _remove_leftovers(self, handle: Handle) -> None:
        with contextlib.suppress(SandboxNotFound):
            info = await self.inspect(handle)
            if info.state in (SandboxState.RUNNING, SandboxState.PAUSED):
                raise DriverConflict(f"{handle} is running already")
            await self._destroy(handle)

    async def destroy(self, handle: Handle) -> None:
        self._directory(handle)
        async with self._locks.of(handle):
            await self._destroy(handle)

    async def stats(self, handle: Handle) -> SandboxStats:
        return await self._look(f"see what {handle} uses", lambda: self._stats(handle))

    async def forget_snapshot(self, source: Path) -> None:
        try:
            await run_at_length(snapshot_place.remove, source)
        except OSError as error:
            raise DriverTransient(f"cannot remove the snapshot in {source}: {error}") from error

    async def trim(self) -> None:
        await self._look("trim the disks of sandboxes", self._spaces.trim)

    async def disk_use(self) -> Mapping[str, DiskUse]:
        return await self._look("look at the disks of sandboxes", self._spaces.use)

    async def read_only(self) -> Sequence[str]:
        return await self._look("look at the disks of sandboxes", self._spaces.read_only)

    async def remove_workspace(self, workspace: Path) -> None:
        try:
            await Workspace(workspace, self._home, limited=self._spaces.limited).remove()
        except OSError as error:
            raise DriverTransient(f"cannot remove the workspace in {workspace}: {error}") from error
