"""Looking at OCI sandboxes: which there are, how they are, what they use. Changes nothing."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.drivers.base import Handle, OomCounter, SandboxInfo, SandboxState, SandboxStats
from holdfast.drivers.commands import Outcome, run
from holdfast.drivers.disk.space import Spaces
from holdfast.drivers.disk.space_driver import SpaceDriver
from holdfast.drivers.linux import cgroup_stats, cgroups, process_stats
from holdfast.drivers.linux.host_processes import mentioned
from holdfast.drivers.linux.ids import ID_BASE
from holdfast.drivers.names import MachineNames, session_of
from holdfast.drivers.oci.config import Host
from holdfast.drivers.oci.first_process import init_process
from holdfast.drivers.oci.memory import MemoryImage
from holdfast.errors import DriverTransient, RuntimeUnavailable, SandboxNotFound

RUNTIME_SECONDS = 60.0
_MOST_LISTS = 3
"""The runtime fails to list all where one is deleted meanwhile."""
_STATES = {
    "creating": SandboxState.CREATED,
    "created": SandboxState.CREATED,
    "running": SandboxState.RUNNING,
    "paused": SandboxState.PAUSED,
    "stopped": SandboxState.STOPPED,
}


class OciObserver(SpaceDriver):
    """The half of the driver that asks."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir / "oci")
        self._runtime_root = self._home / "runtime"
        self._names = MachineNames(self._home, "config.json")
        self._host: Host | None = None
        self._lists: set[asyncio.Task[Outcome]] = set()

    @property
    def root_id(self) -> int | None:
        return None if self._ready().machine.rootless else ID_BASE

    @property
    def _spaces(self) -> Spaces:
        return Spaces(self._home, self._ready().machine.loop_disks, self.root_id)

    def _ready(self) -> Host:
        if self._host is None:
            raise RuntimeUnavailable("the oci driver was not prepared")
        return self._host

    async def _runtime(self, *arguments: str) -> Outcome:
        return await run(*self._call(), *arguments, timeout=RUNTIME_SECONDS)

    def _call(self, directory: Path | None = None) -> Sequence[str]:
        """Return how every command to the runtime begins; it logs to the sandbox's own directory, if it is about
        one."""
        machine = self._ready().machine
        options = machine.gvisor.options if machine.gvisor else ()
        log_file = () if directory is None else ("--log", str(directory / "runtime.log"))
        return machine.runtime, *options, "--root", str(self._runtime_root), *log_file

    async def _exists_in_runtime(self, handle: Handle) -> bool:
        return any(found.handle == handle for found in await self._containers())

    async def inspect(self, handle: Handle) -> SandboxInfo:
        # Without a directory of ours and of the runtime's there is nothing; asking the runtime costs a process.
        if await asyncio.to_thread(self._has_traces, handle):
            for found in await self.list():
                if found.handle == handle:
                    return await asyncio.to_thread(self._with_cause_of_death, found)
        raise SandboxNotFound(f"there is no sandbox {handle}")

    def _has_traces(self, handle: Handle) -> bool:
        places = (self._directory(handle), self._runtime_root / self._names.of(handle), self._runtime_root / handle)
        return any(place.exists() for place in places)

    def _with_cause_of_death(self, info: SandboxInfo) -> SandboxInfo:
        if info.state is SandboxState.STOPPED and not self._ready().machine.rootless:
            used = cgroup_stats.read(partial(cgroups.directory, self._names.of(info.session_id)))
            return replace(info, oom_killed=used is not None and bool(used.oom_kills))
        return info

    def _stats(self, handle: Handle) -> SandboxStats:
        directory = self._directory(handle)
        if not directory.is_dir():
            raise SandboxNotFound(f"there is no sandbox {handle}")
        machine = self._ready().machine
        used = cgroup_stats.read(partial(cgroups.directory, self._names.of(handle))) if machine.cgroups else None
        if used is None:
            init = init_process(directory)
            used = process_stats.of_tree(init.pid) if init else SandboxStats()
        if machine.gvisor:
            used = replace(used, processes=None)  # the host sees threads of gVisor, and not what runs inside
        disk, limit = self._spaces.of(directory).usage()
        return replace(used, disk_bytes=disk, disk_limit_bytes=limit)

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        if not self._ready().machine.cgroups:
            return None
        return cgroup_stats.CgroupOomCounter.of(cgroups.directory(self._names.of(handle), "memory"))

    async def list(self) -> Sequence[SandboxInfo]:
        if not self._ready().machine.gvisor:
            return await self._states()
        # First: whoever is not busy now has come to rest, and what is seen after that is how it ended.
        busy = await self._look(f"read {self._home}", self._busy)
        return await asyncio.to_thread(self._with_memory, await self._states(), busy)

    async def _states(self) -> Sequence[SandboxInfo]:
        containers = {found.handle: found for found in await self._containers()}
        for name in await self._homes():
            handle = Handle(name)
            if handle not in containers:
                containers[handle] = SandboxInfo(handle=handle, session_id=name, state=SandboxState.STOPPED)
        return list(containers.values())

    def _busy(self) -> Sequence[str]:
        """Return the sandboxes whose memory is being written or brought back, be it for a daemon that is dead by
        now."""
        images = {name: MemoryImage(self._home / name) for name in self._session_directories()}
        written = [name for name, image in images.items() if image.is_being_written()]
        kept = {str(image.used): name for name, image in images.items() if image.exists()}
        return [*written, *(kept[path] for path in mentioned(kept))]

    def _with_memory(self, found: Sequence[SandboxInfo], busy: Sequence[str]) -> Sequence[SandboxInfo]:
        """Add to each sandbox whether its memory was kept, and whether that is still being written."""
        return [
            replace(info, memory=MemoryImage(self._directory(info.handle)).exists(), busy=info.session_id in busy)
            for info in found
        ]

    async def _list_containers(self) -> Outcome:
        asked = asyncio.create_task(self._runtime("list", "--format", "json"))
        self._lists.add(asked)
        asked.add_done_callback(self._lists.discard)
        return await asked

    async def _containers(self) -> Sequence[SandboxInfo]:
        """Return what the runtime itself knows."""
        for _ in range(_MOST_LISTS):
            done = await self._list_containers()
            if done.ok:
                break
        else:
            raise DriverTransient(f"cannot list containers: {done.complaint()}")
        try:
            entries = json.loads(done.stdout or "null") or []
            states = {session_of(entry["id"]): entry["status"] for entry in entries}
        except (ValueError, KeyError, TypeError) as error:
            raise DriverTransient(f"the runtime's list is unreadable: {done.stdout[:200]}") from error
        return [SandboxInfo(Handle(id), id, _STATES.get(state, SandboxState.STOPPED)) for id, state in states.items()]
