"""The default driver: any OCI runtime (crun, runc, runsc), without a daemon, as root or as an ordinary user.

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
    Driver,
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
from holdfast.drivers.disk import Disk, make_template
from holdfast.drivers.gvisor import forget
from holdfast.drivers.mounts import is_mounted, mount_shifted
from holdfast.drivers.oci_config import ID_BASE, ID_COUNT, Host
from holdfast.drivers.oci_home import SandboxHome
from holdfast.drivers.oci_machine import Machine, examine
from holdfast.drivers.oci_memory import MemoryImage
from holdfast.drivers.oci_process import init_process, kill_init, last_words
from holdfast.drivers.slirp import Slirp
from holdfast.drivers.tree_removal import remove_tree
from holdfast.errors import (
    DriverConflict,
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


class OciDriver(Driver):
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
            gvisor=machine.gvisor is not None,
        )

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
            memory=machine.gvisor is not None,
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

    def _ready(self) -> tuple[Machine, Host]:
        if self._machine is None or self._host is None:
            raise RuntimeUnavailable("the oci driver was not prepared")
        return self._machine, self._host

    async def _runtime(self, *arguments: str) -> Outcome:
        return await run(*self._call(), *arguments, timeout=_SECONDS)

    def _call(self, directory: Path | None = None) -> Sequence[str]:
        """How every command to the runtime begins; it logs to the sandbox's own directory, if it is about one."""
        machine = self._ready()[0]
        options = machine.gvisor.options if machine.gvisor else ()
        log_file = () if directory is None else ("--log", str(directory / "runtime.log"))
        return machine.runtime, *options, "--root", str(self._runtime_root), *log_file

    # -- sandboxes -------------------------------------------------------------------------------------------------

    def handle_for(self, session_id: str) -> Handle:
        return Handle(session_id)

    def _directory(self, handle: Handle) -> Path:
        """Never outside our home, whatever somebody takes for a handle."""
        if not _HANDLE.fullmatch(handle):
            raise DriverUnsupported(f"{handle[:80]!r} is no handle of the oci driver")
        return self._home / handle

    async def create(self, spec: SandboxSpec) -> Handle:
        handle = self.handle_for(spec.session_id)
        directory = self._directory(handle)
        check_environment(spec.env)
        async with self._lock(handle):
            return await self._create(spec, handle, directory)

    async def _create(self, spec: SandboxSpec, handle: Handle, directory: Path) -> Handle:
        await self._remove_leftovers(handle)
        machine, host = self._ready()
        home = SandboxHome(directory, host)
        disk = Disk(directory, limited=machine.loop_disks)
        try:
            await asyncio.to_thread(home.make)
            template = await self._template(spec.limits.disk_mb) if machine.loop_disks else None
            await disk.create(template)
            await asyncio.to_thread(home.fill, spec, disk.path, self._home.parent)
            if spec.network is Network.FULL:
                await self._start_with_network(handle, directory)
            else:
                await self._start(handle, directory)
        except OSError as error:
            raise DriverTransient(f"cannot prepare the sandbox in {directory}: {error}") from error
        return handle

    async def _template(self, size_mb: int) -> Path:
        return await asyncio.to_thread(make_template, self._home / "templates", size_mb)

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
        # No keyring of its own: the kernel grants a user 200 of them, and sandboxes may not use theirs anyway.
        keyring = () if machine.gvisor else ("--no-new-keyring",)
        await self._start_by((*self._call(directory), *(verb or ("run", "--detach")), *keyring), handle, directory)

    async def _start_by(self, command: Sequence[str], handle: Handle, directory: Path) -> None:
        with await asyncio.to_thread((directory / "runner.log").open, "ab") as output:
            where = ("--bundle", str(directory), "--pid-file", str(directory / "init.pid"))
            done = await uninterrupted(run(*command, *where, handle, timeout=_SECONDS, output=output))
        if not done.ok:
            runtime = self._ready()[0].runtime
            raise DriverTransient(f"{runtime} could not start {handle}: {last_words(directory)}")

    async def destroy(self, handle: Handle) -> None:
        async with self._lock(handle):
            await self._destroy(handle)

    async def _destroy(self, handle: Handle) -> None:
        directory = self._directory(handle)
        await self._end(handle, directory)
        try:
            await asyncio.to_thread(SandboxHome(directory, self._ready()[1]).unmount_layers)
            await Disk(directory, limited=self._ready()[0].loop_disks).remove()
            await asyncio.to_thread(remove_tree, directory)
        except OSError as error:
            raise DriverTransient(f"cannot remove what is left of {handle}: {error}") from error

    async def _end(self, handle: Handle, directory: Path) -> None:
        """Everything that runs, and the runtime's memory of it. Files stay."""
        rootless = self._ready()[0].rootless
        # Before the runtime, whose own way to kill waits a tenth of a second, or does not wait at all.
        await asyncio.to_thread(kill_init, directory, None if rootless else handle)
        await asyncio.to_thread(Slirp(directory, rootless=rootless).stop)
        if self._ready()[0].gvisor:
            await self._remove_cgroups(handle)
            if await asyncio.to_thread(forget, self._runtime_root, handle):
                return
        done = await self._runtime("delete", "--force", handle)
        if not done.ok and await self._exists_in_runtime(handle):
            raise DriverTransient(f"cannot delete the container {handle}: {done.complaint()}")
        if not rootless:
            await self._remove_cgroups(handle)

    async def _remove_cgroups(self, handle: Handle) -> None:
        """With all that is in them."""
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
            await asyncio.to_thread(MemoryImage(directory).discard)
            await self._put_away(directory)

    async def _put_away(self, directory: Path) -> None:
        """Unmount what belongs to a sandbox that has ended."""
        try:
            await asyncio.to_thread(SandboxHome(directory, self._ready()[1]).unmount_layers)
        except OSError as error:
            raise DriverTransient(f"cannot unmount what belongs to {directory.name}: {error}") from error
        await Disk(directory, limited=self._ready()[0].loop_disks).unmount()

    async def checkpoint(self, handle: Handle) -> None:
        async with self._lock(handle):
            directory = self._directory(handle)
            gvisor = self._ready()[0].gvisor
            if gvisor is None:
                raise DriverUnsupported("only gVisor keeps memory: set runtime to runsc")
            if (await self.inspect(handle)).state is not SandboxState.RUNNING:
                raise DriverConflict(f"{handle} does not run")
            image = MemoryImage(directory)
            used = await self.stats(handle)
            try:
                await asyncio.to_thread(image.make_room, used.memory_bytes or 0)
            except OSError as error:
                raise DriverTransient(f"cannot prepare {image.half}: {error}") from error
            options = ("--image-path", str(image.half), *gvisor.checkpoint_options)
            save = image.then_keep((*self._call(directory), "checkpoint", *options, handle))
            done = await uninterrupted(run(*save, timeout=_SECONDS))
            kept = await asyncio.to_thread(image.exists)
            if not kept and (await self.inspect(handle)).state is SandboxState.RUNNING:
                await asyncio.to_thread(image.discard)
                raise DriverTransient(f"cannot keep the memory of {handle}, which goes on: {done.complaint()}")
            await self._end(handle, directory)
            await self._put_away(directory)
            if not kept:
                await asyncio.to_thread(image.discard)
                raise DriverTransient(f"cannot keep the memory of {handle}; its files are kept: {done.complaint()}")

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        async with self._lock(handle):
            directory = self._directory(handle)
            if (await self.inspect(handle)).state is not SandboxState.STOPPED:
                raise DriverConflict(f"{handle} is running already")
            await self._end(handle, directory)  # of a start that was cut off
            image = MemoryImage(directory)
            try:
                await asyncio.to_thread(image.clean if memory else image.discard)
                await Disk(directory, limited=self._ready()[0].loop_disks).mount()
                await asyncio.to_thread(SandboxHome(directory, self._ready()[1]).mount_layers)
                if await asyncio.to_thread(image.exists):
                    await self._restore(handle, directory, image)
                    return True
                if await asyncio.to_thread(_has_network, directory):
                    await self._start_with_network(handle, directory)
                else:
                    await self._start(handle, directory)
            except OSError as error:
                raise DriverTransient(f"cannot start the sandbox in {directory}: {error}") from error
            return False

    async def _restore(self, handle: Handle, directory: Path, image: MemoryImage) -> None:
        """When it fails, nothing of the attempt is left, and the image is as it was."""
        restore = (*self._call(directory), "restore", "--detach", "--image-path", str(image.path))
        try:
            await self._start_by(image.then_retire(restore), handle, directory)
        except DriverTransient:
            await self._end(handle, directory)
            await self._put_away(directory)
            raise
        await asyncio.to_thread(image.clean)

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
        disk, limit = Disk(directory, limited=machine.loop_disks).usage()
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
        if self._ready()[0].gvisor:
            return await asyncio.to_thread(self._with_memory, list(containers.values()))
        return list(containers.values())

    def _with_memory(self, found: Sequence[SandboxInfo]) -> Sequence[SandboxInfo]:
        """Who has kept its memory, and where that is still being written."""
        images = [MemoryImage(self._directory(info.handle)) for info in found]
        return [
            replace(info, memory=image.exists(), busy=image.is_being_written())
            for info, image in zip(found, images, strict=True)
        ]

    def _session_directories(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self._home) if entry.name.startswith("ses_")]

    def _state(self, name: str, status: str) -> SandboxState:
        state = _STATES.get(status, SandboxState.STOPPED)
        if state is SandboxState.RUNNING and self._ready()[0].gvisor and freezer.is_frozen(name):
            return SandboxState.PAUSED  # runsc knows only of its own way to pause
        return state

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
                    state=self._state(entry["id"], entry["status"]),
                )
                for entry in entries
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise DriverTransient(f"the runtime's list is unreadable: {done.stdout[:200]}") from error


def _has_network(directory: Path) -> bool:
    return (directory / "resolv.conf").exists()
