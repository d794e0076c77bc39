"""The base of all drivers that keep their sandboxes' files in a ``Space`` on this host: how a new sandbox gets one."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from holdfast.drivers.base import DiskUse, Driver, Handle, SandboxSpec
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.disk.space import Space, Spaces
from holdfast.errors import DriverTransient

FillSpace = Callable[[Space], Awaitable[None]]
"""It fills the space of a new sandbox."""


class SpaceDriver(Driver):
    """Implements ``create`` and ``restore``. Each driver has its own ``snapshot``, because it knows the sandbox's first
    process, and what else to save."""

    @property
    @abstractmethod
    def _spaces(self) -> Spaces:
        """The properties of all spaces; valid after ``prepare``."""

    @abstractmethod
    async def _make(self, spec: SandboxSpec, fill_space: FillSpace) -> Handle:
        """Make a sandbox; ``fill_space`` provides the content of its space."""

    async def create(self, spec: SandboxSpec) -> Handle:
        return await self._make(spec, lambda space: space.create(spec, self))

    async def restore(self, spec: SandboxSpec, source: Path, *, consume: bool = False) -> Handle:
        facts = await asyncio.to_thread(SnapshotFacts.read, source)
        facts.check(spec, self, limited=self._spaces.limited)
        return await self._make(spec, lambda space: space.restore(spec, self, source, consume=consume))

    async def forget_snapshot(self, source: Path) -> None:
        await self._spaces.forget_snapshot(source)

    async def trim(self) -> None:
        try:
            await asyncio.to_thread(self._spaces.trim)
        except OSError as error:
            raise DriverTransient(f"cannot trim the disks of sandboxes: {error}") from error

    async def disk_use(self) -> Mapping[str, DiskUse]:
        try:
            return await asyncio.to_thread(self._spaces.use)
        except OSError as error:
            raise DriverTransient(f"cannot look at the disks of sandboxes: {error}") from error

    async def read_only(self) -> Sequence[str]:
        try:
            return await asyncio.to_thread(self._spaces.read_only)
        except OSError as error:
            raise DriverTransient(f"cannot look at the disks of sandboxes: {error}") from error

    async def remove_workspace(self, workspace: Path) -> None:
        await self._spaces.remove_workspace(workspace)
