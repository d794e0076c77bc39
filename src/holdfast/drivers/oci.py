"""The default driver: any OCI runtime (crun, runc), without a daemon, as root or as an ordinary user.

Everything about one sandbox is in ``<state>/oci/<session id>/``; the runtime's own state is in ``<state>/oci/runtime``.
The container's name is the session's id, so a handle is found again from the id alone.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import structlog

from holdfast.drivers import cgroup_stats, cgroups, freezer, process_stats, runtime_bundle
from holdfast.drivers.base import (
    Capabilities,
    Check,
    Handle,
    Network,
    OomCounter,
    SandboxInfo,
    SandboxSpec,
    SandboxState,
    SandboxStats,
    check_environment,
)
from holdfast.drivers.commands import Outcome, run, uninterrupted
from holdfast.drivers.file_copy import no_room
from holdfast.drivers.mounts import is_mounted, mount_shifted
from holdfast.drivers.oci_config import ID_BASE, ID_COUNT, Host
from holdfast.drivers.oci_home import SandboxHome
from holdfast.drivers.oci_machine import Machine, examine
from holdfast.drivers.oci_process import init_process, kill_init, last_words
from holdfast.drivers.slirp import Slirp
from holdfast.drivers.space import Spaces
from holdfast.drivers.space_driver import FillSpace, SpaceDriver
from holdfast.drivers.tree_removal import remove_tree
from holdfast.errors import (
    DriverConflict,
    DriverQuota,
    DriverTransient,
    DriverUnsupported,
    RuntimeUnavailable,
    SandboxNotFound,
)

log = structlog.get_logger(__name__)

_SECONDS = 60.0
_HANDLE = re.compile(r"ses_[a-z0-9_]{1,60}")
_STATES = {
    "creating": SandboxState.CREATED,
    "created": SandboxState.CREATED,
    "running": SandboxState.RUNNING,
    "paused": SandboxState.PAUSED,
    "stopped": SandboxState.STOPPED,
}


class OciDriver(SpaceDriver):
    """Sandboxes as OCI containers."""

    name = "oci"

    def __init__(self, state_dir: Path, *, runtime: str | None = None) -> None:
        self._home = state_dir / "oci"
        self._runtime_root = self._home / "runtime"
        self._bundles = state_dir / "runtime-bundle"
        self._wanted = runtime
        self._machine: Machine | None = None
        self._can_freeze = False
        self._host: Host | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, handle: Handle) -> asyncio.Lock:
        """Held while a sandbox is made or removed: two at once would trip over each other's files."""
        return self._locks.setdefault(handle, asyncio.Lock())

    # -- the machine -----------------------------------------------------------------------------------------------

    async def check(self) -> Sequence[Check]:
        return (await examine(self._wanted)).checks

    async def prepare(self) -> None:
        machine = await examine(self._wanted)
        failed = [check for check in machine.checks if check.fatal and not check.ok]
        if failed:
            reasons = "; ".join(f"{check.name}: {check.detail}. {check.remedy}" for check in failed)
            raise RuntimeUnavailable(f"the oci driver cannot work here: {reasons}")
        self._home.mkdir(parents=True, exist_ok=True)
        for directory in (self._home.parent, self._home, self._runtime_root):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
        bundle = await asyncio.to_thread(runtime_bundle.build, self._bundles)
        shifted = {} if machine.rootless else await asyncio.to_thread(self._shift_owners, Path("/usr"))
        self._can_freeze = not machine.rootless and await asyncio.to_thread(freezer.available)
        self._machine = machine
        self._host = Host(
            bundle=bundle,
            uid_map=machine.uid_map,
            gid_map=machine.gid_map,
            rootless=machine.rootless,
            cgroups=machine.cgroups,
            cgroup_namespace=machine.cgroup_namespace,
            open_files=min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            machine=os.uname().machine,
            shifted=shifted,
        )
        await asyncio.to_thread(self._spaces.thaw_all)

    def _shift_owners(self, source: Path) -> dict[Path, Path]:
        """Show ``source`` with root's files belonging to the sandboxes' root; without it they belong to nobody."""
        target = self._home / "shifted" / source.name
        target.mkdir(parents=True, exist_ok=True)
        if not is_mounted(target):
            try:
                mount_shifted(source, target, ID_BASE, ID_COUNT)
            except OSError as error:
                log.info("oci.idmap.unavailable", path=str(source), why=error.strerror)
                return {}
        return {source: target}

    @property
    def capabilities(self) -> Capabilities:
        machine = self._ready()[0]
        return Capabilities(
            isolation=True,
            pause=self._can_freeze,
            stop=True,
            snapshot=True,
            workspace=True,
            memory_limit=machine.cgroups,
            cpu_limit=machine.cgroups,
            pids_limit=True,
            disk_limit=machine.loop_disks,
            networks=frozenset(Network) if machine.full_network.ok else frozenset({Network.NONE}),
            network_remedy=machine.full_network.remedy,
        )

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
        machine = self._ready()[0]
        return await run(machine.runtime, "--root", str(self._runtime_root), *arguments, timeout=_SECONDS)

    # -- sandboxes -------------------------------------------------------------------------------------------------

    def handle_for(self, session_id: str) -> Handle:
        return Handle(session_id)

    def _directory(self, handle: Handle) -> Path:
        """Never outside our home, whatever somebody takes for a handle."""
        if not _HANDLE.fullmatch(handle):
            raise DriverUnsupported(f"{handle[:80]!r} is no handle of the oci driver")
        return self._home / handle

    async def _make(self, spec: SandboxSpec, fill_space: FillSpace) -> Handle:
        handle = self.handle_for(spec.session_id)
        directory = self._directory(handle)
        check_environment(spec.env)
        async with self._lock(handle):
            await self._remove_leftovers(handle)
            try:
                await self._fill(spec, directory, fill_space)
                if spec.network is Network.FULL:
                    await self._start_with_network(handle, directory)
                else:
                    await self._start(handle, directory)
            except OSError as error:
                if no_room(error):
                    await uninterrupted(self._destroy(handle))
                    raise DriverQuota(f"there is no room for {handle} in {self._home}; make some") from error
                raise DriverTransient(f"cannot prepare the sandbox in {directory}: {error}") from error
        return handle

    async def _fill(self, spec: SandboxSpec, directory: Path, fill_space: FillSpace) -> None:
        home, space = SandboxHome(directory, self._ready()[1]), self._spaces.of(directory)
        await asyncio.to_thread(home.make)
        await fill_space(space)
        await asyncio.to_thread(home.fill, spec, space, self._home.parent)

    async def _remove_leftovers(self, handle: Handle) -> None:
        with contextlib.suppress(SandboxNotFound):
            info = await self.inspect(handle)
            if info.state in (SandboxState.RUNNING, SandboxState.PAUSED):
                raise DriverConflict(f"{handle} is running already")
            await self._destroy(handle)

    async def _start_with_network(self, handle: Handle, directory: Path) -> None:
        """The runner is let go when there is a network; until then nobody takes the sandbox for a running one."""
        machine = self._ready()[0]
        await self._start(handle, directory, "create")
        init = await asyncio.to_thread(init_process, directory)
        if init is None:
            raise DriverTransient(f"{machine.runtime} has made {handle}, but its process is not there")
        groups = await asyncio.to_thread(list, cgroups.of(handle))
        await uninterrupted(Slirp(directory, rootless=machine.rootless).start(init.pid, groups))
        done = await uninterrupted(self._runtime("start", handle))
        # The call of a daemon that died may have been faster.
        if not done.ok and (await self.inspect(handle)).state is not SandboxState.RUNNING:
            raise DriverTransient(f"{machine.runtime} could not start {handle}: {done.complaint()}")

    async def _start(self, handle: Handle, directory: Path, *verb: str) -> None:
        """The runtime's detached containers inherit its stdio, so that must not be a pipe of ours."""
        machine = self._ready()[0]
        options = ("--root", str(self._runtime_root), "--log", str(directory / "runtime.log"))
        with await asyncio.to_thread((directory / "runner.log").open, "ab") as output:
            pid_file = directory / "init.pid"
            # No keyring of its own: the kernel grants a user 200 of them, and sandboxes may not use theirs anyway.
            flags = ("--no-new-keyring", "--bundle", str(directory), "--pid-file", str(pid_file))
            words = verb or ("run", "--detach")
            start = run(machine.runtime, *options, *words, *flags, handle, timeout=_SECONDS, output=output)
            done = await uninterrupted(start)
        if not done.ok:
            raise DriverTransient(f"{machine.runtime} could not start {handle}: {last_words(directory)}")

    async def destroy(self, handle: Handle) -> None:
        async with self._lock(handle):
            await self._destroy(handle)

    async def _destroy(self, handle: Handle) -> None:
        directory = self._directory(handle)
        await self._end(handle, directory)
        try:
            await self._spaces.of(directory).remove()
            await asyncio.to_thread(remove_tree, directory)
        except OSError as error:
            raise DriverTransient(f"cannot remove what is left of {handle}: {error}") from error

    async def _end(self, handle: Handle, directory: Path) -> None:
        """Everything that runs, and the runtime's memory of it. Files stay."""
        rootless = self._ready()[0].rootless
        # Before the runtime, whose own way to kill waits a tenth of a second, or does not wait at all.
        await asyncio.to_thread(kill_init, directory, None if rootless else handle)
        await asyncio.to_thread(Slirp(directory, rootless=rootless).stop)
        done = await self._runtime("delete", "--force", handle)
        if not done.ok and await self._exists_in_runtime(handle):
            raise DriverTransient(f"cannot delete the container {handle}: {done.complaint()}")
        if not rootless:
            try:
                await asyncio.to_thread(cgroups.remove, handle)
            except OSError as error:
                raise DriverTransient(f"cannot remove the control groups of {handle}: {error}") from error

    # -- sleep -------------------------------------------------------------------------------------------------------

    async def pause(self, handle: Handle) -> None:
        async with self._lock(handle):
            self._directory(handle)
            if not self.capabilities.pause:
                raise DriverUnsupported("freezing a sandbox needs root and the cgroup freezer")
            await asyncio.to_thread(freezer.freeze, handle)

    async def resume(self, handle: Handle) -> None:
        async with self._lock(handle):
            self._directory(handle)
            await asyncio.to_thread(freezer.thaw, handle)

    async def stop(self, handle: Handle) -> None:
        async with self._lock(handle):
            directory = self._directory(handle)
            if not await asyncio.to_thread(directory.is_dir):
                raise SandboxNotFound(f"there is no sandbox {handle}")
            await self._end(handle, directory)
            await self._spaces.of(directory).unmount()

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        async with self._lock(handle):
            directory = self._directory(handle)
            if (await self.inspect(handle)).state is not SandboxState.STOPPED:
                raise DriverConflict(f"{handle} is running already")
            await self._end(handle, directory)  # of a start that was cut off
            try:
                await self._spaces.of(directory).mount()
                if await asyncio.to_thread(_has_network, directory):
                    await self._start_with_network(handle, directory)
                else:
                    await self._start(handle, directory)
            except OSError as error:
                raise DriverTransient(f"cannot start the sandbox in {directory}: {error}") from error
            return False

    # -- snapshots -------------------------------------------------------------------------------------------------

    async def snapshot(self, handle: Handle, to: Path, *, memory: bool = False, lasting: bool = True) -> None:
        directory = self._directory(handle)
        if memory:
            raise DriverUnsupported(f"{self._ready()[0].runtime} cannot keep memory")
        async with self._lock(handle):
            # Its directory tells all; asking the runtime would cost a process.
            if not await asyncio.to_thread(directory.is_dir):
                raise SandboxNotFound(f"there is no sandbox {handle}")
            init = await asyncio.to_thread(self._writer, handle, directory)
            await self._spaces.of(directory).snapshot(to, lasting=lasting, init=init)

    def _writer(self, handle: Handle, directory: Path) -> int | None:
        """The process to stop with all below it, so that nothing is written; None where nothing runs."""
        init = init_process(directory)
        return init.pid if init and not (self._can_freeze and freezer.is_frozen(handle)) else None

    # -- looking ---------------------------------------------------------------------------------------------------

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
        disk, limit = self._spaces.of(directory).usage()
        return replace(used, disk_bytes=disk, disk_limit_bytes=limit)

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        return cgroup_stats.CgroupOomCounter.of(handle) if self._ready()[0].cgroups else None

    async def list(self) -> Sequence[SandboxInfo]:
        containers = {found.handle: found for found in await self._containers()}
        try:
            names = await asyncio.to_thread(self._session_directories)
        except OSError as error:
            raise DriverTransient(f"cannot read {self._home}: {error.strerror}") from error
        for name in names:
            handle = Handle(name)
            if handle not in containers:
                containers[handle] = SandboxInfo(handle=handle, session_id=name, state=SandboxState.STOPPED)
        return list(containers.values())

    def _session_directories(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self._home) if entry.name.startswith("ses_")]

    async def _containers(self) -> Sequence[SandboxInfo]:
        """What the runtime itself knows."""
        done = await self._runtime("list", "--format", "json")
        if not done.ok:
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


def _has_network(directory: Path) -> bool:
    return (directory / "resolv.conf").exists()
