"""Looking at OCI sandboxes: which there are, how they are, what they use. Changes nothing."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.drivers.base import Handle, OomCounter, SandboxInfo, SandboxState, SandboxStats
from holdfast.drivers.commands import Outcome, run
from holdfast.drivers.disk.space import Spaces
from holdfast.drivers.disk.space_driver import SpaceDriver
from holdfast.drivers.linux import cgroup_stats, process_stats
from holdfast.drivers.linux.host_processes import mentioned
from holdfast.drivers.linux.ids import ID_BASE
from holdfast.drivers.oci.config import Host
from holdfast.drivers.oci.first_process import init_process
from holdfast.drivers.oci.machine import Machine
from holdfast.drivers.oci.memory import MemoryImage
from holdfast.errors import DriverTransient, DriverUnsupported, RuntimeUnavailable, SandboxNotFound

RUNTIME_SECONDS = 60.0
_MOST_LISTS = 3
"""The runtime fails to list all where one is deleted meanwhile."""
_HANDLE = re.compile(r"ses_[a-z0-9_]{1,60}")
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
        self._home = state_dir / "oci"
        self._runtime_root = self._home / "runtime"
        self._machine: Machine | None = None
        self._host: Host | None = None
        self._lists: set[asyncio.Task[Outcome]] = set()

    @property
    def root_id(self) -> int | None:
        return None if self._ready()[0].rootless else ID_BASE

    @property
    def _spaces(self) -> Spaces:
        return Spaces(self._home, self._ready()[0].loop_disks, self.root_id)

    def _ready(self) -> tuple[Machine, Host]:
        if self._machine is None or self._host is None:
            raise RuntimeUnavailable("the oci driver was not prepared")
        return self._machine, self._host

    async def _runtime(self, *arguments: str) -> Outcome:
        return await run(*self._call(), *arguments, timeout=RUNTIME_SECONDS)

    def _call(self, directory: Path | None = None) -> Sequence[str]:
        """How every command to the runtime begins; it logs to the sandbox's own directory, if it is about one."""
        machine = self._ready()[0]
        options = machine.gvisor.options if machine.gvisor else ()
        log_file = () if directory is None else ("--log", str(directory / "runtime.log"))
        return machine.runtime, *options, "--root", str(self._runtime_root), *log_file

    def handle_for(self, session_id: str) -> Handle:
        return Handle(session_id)

    def _directory(self, handle: Handle) -> Path:
        """Never outside our home, whatever somebody takes for a handle."""
        if not _HANDLE.fullmatch(handle):
            raise DriverUnsupported(f"{handle[:80]!r} is no handle of the oci driver")
        return self._home / handle

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
        return self._directory(handle).exists() or (self._runtime_root / handle).exists()

    def _with_cause_of_death(self, info: SandboxInfo) -> SandboxInfo:
        if info.state is SandboxState.STOPPED and not self._ready()[0].rootless:
            used = cgroup_stats.read(info.session_id)
            return replace(info, oom_killed=used is not None and bool(used.oom_kills))
        return info

    async def stats(self, handle: Handle) -> SandboxStats:
        try:
            return await asyncio.to_thread(self._stats, handle)
        except OSError as error:
            raise DriverTransient(f"cannot see what {handle} uses: {error}") from error

    def _stats(self, handle: Handle) -> SandboxStats:
        directory = self._directory(handle)
        if not directory.is_dir():
            raise SandboxNotFound(f"there is no sandbox {handle}")
        machine = self._ready()[0]
        used = cgroup_stats.read(handle) if machine.cgroups else None
        if used is None:
            init = init_process(directory)
            used = process_stats.of_tree(init.pid) if init else SandboxStats()
        if machine.gvisor:
            used = replace(used, processes=None)  # the host sees threads of gVisor, and not what runs inside
        disk, limit = self._spaces.of(directory).usage()
        return replace(used, disk_bytes=disk, disk_limit_bytes=limit)

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        return cgroup_stats.CgroupOomCounter.of(handle) if self._ready()[0].cgroups else None

    async def list(self) -> Sequence[SandboxInfo]:
        if not self._ready()[0].gvisor:
            return await self._states()
        # First: whoever is not busy now has come to rest, and what is seen after that is how it ended.
        busy = await self._look(self._busy)
        return await asyncio.to_thread(self._with_memory, await self._states(), busy)

    async def _states(self) -> Sequence[SandboxInfo]:
        containers = {found.handle: found for found in await self._containers()}
        for name in await self._look(self._session_directories):
            handle = Handle(name)
            if handle not in containers:
                containers[handle] = SandboxInfo(handle=handle, session_id=name, state=SandboxState.STOPPED)
        return list(containers.values())

    async def _look(self, look: Callable[[], Sequence[str]]) -> Sequence[str]:
        try:
            return await asyncio.to_thread(look)
        except OSError as error:
            raise DriverTransient(f"cannot read {self._home}: {error.strerror}") from error

    def _busy(self) -> Sequence[str]:
        """Whose memory is being written, or brought back, be it on behalf of a daemon that is dead by now."""
        images = {name: MemoryImage(self._home / name) for name in self._session_directories()}
        written = [name for name, image in images.items() if image.is_being_written()]
        kept = {str(image.used): name for name, image in images.items() if image.exists()}
        return [*written, *(kept[path] for path in mentioned(kept))]

    def _with_memory(self, found: Sequence[SandboxInfo], busy: Sequence[str]) -> Sequence[SandboxInfo]:
        """Who has kept its memory, and where that was still being written."""
        return [
            replace(info, memory=MemoryImage(self._directory(info.handle)).exists(), busy=info.session_id in busy)
            for info in found
        ]

    def _session_directories(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self._home) if entry.name.startswith("ses_")]

    async def _list_containers(self) -> Outcome:
        asked = asyncio.create_task(self._runtime("list", "--format", "json"))
        self._lists.add(asked)
        asked.add_done_callback(self._lists.discard)
        return await asked

    async def _containers(self) -> Sequence[SandboxInfo]:
        """What the runtime itself knows."""
        for _ in range(_MOST_LISTS):
            done = await self._list_containers()
            if done.ok:
                break
        else:
            raise DriverTransient(f"cannot list containers: {done.complaint()}")
        try:
            entries = json.loads(done.stdout or "null") or []
            return [
                SandboxInfo(
                    handle=Handle(entry["id"]),
                    session_id=entry["id"],
                    state=_STATES.get(entry["status"], SandboxState.STOPPED),
                )
                for entry in entries
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise DriverTransient(f"the runtime's list is unreadable: {done.stdout[:200]}") from error
