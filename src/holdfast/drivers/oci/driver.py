"""The default driver: any OCI runtime (crun, runc, runsc), without a daemon, as root or as an ordinary user.

Everything about one sandbox is in ``<state>/oci/<session id>/``; the runtime's own state is in ``<state>/oci/runtime``.
A handle is the session's id; ``names`` says what the container is called.
"""

import asyncio
import contextlib
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.drivers import runtime_bundle
from holdfast.drivers.base import Capabilities, Check, Handle, SandboxSpec, SandboxState, require
from holdfast.drivers.commands import finish_despite_cancel, run
from holdfast.drivers.disk.space_driver import FillSpace
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux import cgroups, freezer, mounts, withheld
from holdfast.drivers.linux.kernel_limits import process_limits
from holdfast.drivers.linux.slirp import Slirp
from holdfast.drivers.oci import id_overlaps
from holdfast.drivers.oci.config import Host
from holdfast.drivers.oci.first_process import init_process, kill_init, last_words, pid_file_in
from holdfast.drivers.oci.gvisor import forget
from holdfast.drivers.oci.home import SandboxHome
from holdfast.drivers.oci.id_ranges import USUAL, IdRanges, Layout
from holdfast.drivers.oci.machine import examine
from holdfast.drivers.oci.memory import MemoryImage
from holdfast.drivers.oci.observer import RUNTIME_SECONDS, OciObserver
from holdfast.drivers.oci.stage import Ability, Stage, find_out, place
from holdfast.errors import (
    DriverConflict,
    DriverTransient,
    DriverUnsupported,
    SandboxNotFound,
)
from holdfast.network.addresses import Block
from holdfast.records.limits import Network

log = structlog.get_logger(__name__)


class OciDriver(OciObserver):
    """Sandboxes as OCI containers."""

    name = "oci"

    def __init__(
        self, state_dir: Path, *, runtime: str | None = None, opened: Sequence[Block] = (), ids: Layout = USUAL
    ) -> None:
        """``opened``: internal addresses that sandboxes with a full network may reach. ``ids``: those of sandboxes."""
        super().__init__(state_dir)
        self._opened = opened
        self._bundles = state_dir / "runtime-bundle"
        self._wanted = runtime
        self._ids = ids
        self._can_freeze = False
        self._ability: Ability | None = None
        self._ranges: IdRanges | None = None

    # -- the machine -----------------------------------------------------------------------------------------------

    async def check(self) -> Sequence[Check]:
        return [*(await examine(self._wanted)).checks, *await id_overlaps.checks(self._ids)]

    async def prepare(self) -> None:
        withheld.OF_THIS_HOST.begin(Path("/usr"))  # before all else: no sandbox is made without its result
        machine = await examine(self._wanted)
        require(machine.checks, self.name)
        self._home.mkdir(parents=True, exist_ok=True)
        for directory in (self._home.parent, self._home, self._runtime_root):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
        bundle = await asyncio.to_thread(runtime_bundle.build, self._bundles)
        if not machine.rootless:
            await asyncio.to_thread(self._prepare_stages)
        self._can_freeze = not machine.rootless and await asyncio.to_thread(freezer.available)
        self._host = Host(
            bundle=bundle,
            machine=machine,
            open_files=min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            counts=process_limits(shared=machine.rootless),
            architecture=os.uname().machine,
            shifts_host=self._ability is not None and self._ability.shifts_host,
        )
        await asyncio.to_thread(self._names.read, self._runtime_root)
        await asyncio.to_thread(self._spaces.thaw_all)

    def _prepare_stages(self) -> None:
        """Find out how sandboxes can be shown their files, and put in order what daemons before this one have left."""
        with contextlib.suppress(OSError):  # the host's /usr was mounted there: never removed, only let go of
            mounts.unmount_tree(self._home / "shifted")
            (self._home / "shifted" / "usr").rmdir()
            (self._home / "shifted").rmdir()
        self._ability = find_out(place(self._home / "views"), self._home)
        if self._ability is None or not self._ability.shifts_disks:
            log.warning("oci.ids.shared", remedy="holdfast doctor says what is missing")
        self._ranges = IdRanges.of_machine(self._home / "ids", self._ids)
        self._ranges.clean()

    @property
    def capabilities(self) -> Capabilities:
        machine = self._ready().machine
        return Capabilities(
            isolation=True,
            pause=self._can_freeze,
            stop=True,
            memory=machine.gvisor is not None,
            memory_copies=machine.gvisor is not None,
            snapshot=True,
            workspace=True,
            memory_limit=machine.cgroups,
            cpu_limit=machine.cgroups,
            pids_limit=True,
            disk_limit=machine.loop_disks,
            private_counts=self._ability is not None and (self._ability.shifts_disks or machine.gvisor is not None),
            networks=frozenset(Network) if machine.full_network.ok else frozenset({Network.NONE}),
            network_remedy=machine.full_network.remedy,
        )

    # -- sandboxes -------------------------------------------------------------------------------------------------

    async def _build(self, spec: SandboxSpec, fill_space: FillSpace) -> None:
        handle = self.handle_for(spec.session_id)
        directory = self._directory(handle)
        home, space = SandboxHome(directory, self._ready()), self._spaces.of(directory)
        await asyncio.to_thread(space.make_home)
        name = await asyncio.to_thread(self._names.note, spec.session_id)
        await fill_space(space)
        await asyncio.to_thread(home.fill, spec, space, self._home.parent, name)
        await self._start_made(handle, directory)

    async def _start_made(self, handle: Handle, directory: Path) -> bool:
        """Start a sandbox whose directory is complete; returns whether its memory came back."""
        image = MemoryImage(directory)
        if await asyncio.to_thread(image.exists):
            await self._start_from(image, handle, directory)
            return True
        if await asyncio.to_thread((directory / "resolv.conf").exists):  # made for those with a network
            await self._start_with_network(handle, directory)
        else:
            await self._start(handle, directory)
        return False

    async def _start_with_network(self, handle: Handle, directory: Path) -> None:
        """Start the sandbox, and let the runner go when there is a network; until then nobody takes it for a running
        one."""
        machine = self._ready().machine
        await self._start(handle, directory, "create")
        init = await asyncio.to_thread(init_process, directory)
        if init is None:
            raise DriverTransient(f"{machine.runtime} has made {handle}, but its process is not there")
        groups = await asyncio.to_thread(list, cgroups.of(self._names.of(handle)))
        slirp = Slirp(directory, rootless=machine.rootless, opened=self._opened)
        await finish_despite_cancel(slirp.start(init.pid, groups))
        done = await finish_despite_cancel(self._runtime("start", self._names.of(handle)))
        # The call of a daemon that died may have been faster.
        if not done.ok and (await self.inspect(handle)).state is not SandboxState.RUNNING:
            raise DriverTransient(f"{machine.runtime} could not start {handle}: {done.complaint()}")

    async def _start(self, handle: Handle, directory: Path, *verb: str) -> None:
        """Start the sandbox. The runtime's detached containers inherit its stdio, so that must not be a pipe of
        ours."""
        # No keyring of its own: the kernel grants a user 200 of them, and sandboxes may not use theirs anyway.
        keyring = () if self._ready().machine.gvisor else ("--no-new-keyring",)
        await self._start_by((*self._call(directory), *(verb or ("run", "--detach")), *keyring), handle, directory)
        if self._ready().machine.cgroups and not self._ready().machine.gvisor:  # whose sockets are not the host's
            await asyncio.to_thread(cgroups.limit_socket_buffers, cgroups.directory(self._names.of(handle), "memory"))

    async def _start_by(self, command: Sequence[str], handle: Handle, directory: Path) -> None:
        """Start the sandbox by a command of the runtime that lacks only what to start."""
        stage = await asyncio.to_thread(self._stage, directory)
        with await asyncio.to_thread((directory / "runner.log").open, "ab") as output:
            bundle = str(stage.bundle if stage else directory)
            where = ("--bundle", bundle, "--pid-file", str(pid_file_in(directory)))
            call = run(
                *(stage.prefix if stage else ()),
                *command,
                *where,
                self._names.of(handle),
                timeout=RUNTIME_SECONDS,
                output=output,
                within=stage.enter if stage else None,
            )
            done = await finish_despite_cancel(call)
        if not done.ok:
            raise DriverTransient(f"{self._ready().machine.runtime} could not start {handle}: {last_words(directory)}")

    def _stage(self, directory: Path) -> Stage | None:
        """Return the stage that the runtime is started on; None where it is shown the sandbox's files as they are."""
        host = self._ready()
        if self._ability is None or self._ranges is None:
            return None
        home = SandboxHome(directory, host)
        # gVisor's kernel keeps by itself what Linux counts per user.
        disks = self._spaces.of(directory).disk_paths()
        return Stage(
            directory, self._ability, self._ranges, home.config(), disks, home.layers(), own_ids=not host.gvisor
        )

    async def _destroy(self, handle: Handle) -> None:
        directory = self._directory(handle)
        await self._end(handle, directory)
        try:
            await asyncio.to_thread(SandboxHome(directory, self._ready()).unmount_layers)
            await self._spaces.of(directory).remove()
            await asyncio.to_thread(self._remove_home, directory)
        except OSError as error:
            raise DriverTransient(f"cannot remove what is left of {handle}: {error}") from error

    def _remove_home(self, directory: Path) -> None:
        if self._ranges is not None:
            self._ranges.release(directory)
        self._names.forget(directory.name)
        remove_tree(directory)

    async def _end(self, handle: Handle, directory: Path) -> None:
        """End everything that runs, and the runtime's memory of it. Files stay."""
        rootless, name = self._ready().machine.rootless, self._names.of(handle)
        # Before the runtime, whose own way to kill waits a tenth of a second, or does not wait at all.
        await asyncio.to_thread(kill_init, directory, None if rootless else name)
        await asyncio.to_thread(Slirp(directory, rootless=rootless).stop)
        if self._ready().machine.gvisor:
            await self._remove_cgroups(name)
            if await asyncio.to_thread(forget, self._runtime_root, name):
                await self._forget_what_lists_leave(name)
                return
        done = await self._runtime("delete", "--force", name)
        if not done.ok and await self._exists_in_runtime(handle):
            raise DriverTransient(f"cannot delete the container {handle}: {done.complaint()}")
        if not rootless:
            await self._remove_cgroups(name)

    async def _forget_what_lists_leave(self, name: str) -> None:
        """Remove locks that ``list`` has left: runsc locks each container that it lists, also one that was forgotten
        meanwhile."""
        if self._lists:
            await asyncio.wait(set(self._lists))
            await asyncio.to_thread(forget, self._runtime_root, name)

    async def _remove_cgroups(self, name: str) -> None:
        """Remove the sandbox's cgroups with all that is in them."""
        try:
            await asyncio.to_thread(cgroups.remove, name)
        except OSError as error:
            raise DriverTransient(f"cannot remove the control groups of {name}: {error}") from error

    # -- sleep -------------------------------------------------------------------------------------------------------

    async def pause(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            self._directory(handle)
            if not self.capabilities.pause:
                raise DriverUnsupported("freezing a sandbox needs root and the cgroup freezer")
            if self._ready().machine.gvisor:
                await self._turn(handle, "pause", SandboxState.RUNNING, SandboxState.PAUSED)
            else:
                await asyncio.to_thread(freezer.freeze, self._names.of(handle))

    async def resume(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            self._directory(handle)
            if self._ready().machine.gvisor:
                await self._turn(handle, "resume", SandboxState.PAUSED, SandboxState.RUNNING)
            else:
                await asyncio.to_thread(freezer.thaw, self._names.of(handle))

    async def _turn(self, handle: Handle, verb: str, before: SandboxState, after: SandboxState) -> None:
        """Pause or resume by gVisor's own means: frozen from outside it would not even tell that it exists."""
        state = (await self.inspect(handle)).state
        if state is before:
            done = await finish_despite_cancel(self._runtime(verb, self._names.of(handle)))
            state = after if done.ok else (await self.inspect(handle)).state
        if state is not after:
            raise DriverTransient(f"cannot {verb} {handle}, which is {state}")

    async def stop(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            directory = self._directory(handle)
            if not await asyncio.to_thread(directory.is_dir):
                raise SandboxNotFound(f"there is no sandbox {handle}")
            await self._end(handle, directory)
            await asyncio.to_thread(MemoryImage(directory).discard)
            await self._put_away(directory)

    async def _put_away(self, directory: Path) -> None:
        """Unmount what belongs to a sandbox that has ended."""
        try:
            await asyncio.to_thread(SandboxHome(directory, self._ready()).unmount_layers)
        except OSError as error:
            raise DriverTransient(f"cannot unmount what belongs to {directory.name}: {error}") from error
        await self._spaces.of(directory).unmount()

    async def checkpoint(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            directory, gvisor = self._directory(handle), self._ready().machine.gvisor
            if gvisor is None:
                raise DriverUnsupported("only gVisor keeps memory: set runtime to runsc")
            if (await self.inspect(handle)).state is not SandboxState.RUNNING:
                raise DriverConflict(f"{handle} does not run")
            image, used = MemoryImage(directory), await self.stats(handle)
            command = (*self._call(directory), "checkpoint", *gvisor.checkpoint_options)
            problem = await finish_despite_cancel(image.save(command, self._names.of(handle), used.memory_bytes or 0))
            if problem and (await self.inspect(handle)).state is SandboxState.RUNNING:
                await asyncio.to_thread(image.discard)
                raise DriverTransient(f"cannot keep the memory of {handle}, which goes on: {problem}")
            await self._end(handle, directory)
            await self._put_away(directory)
            if problem:
                await asyncio.to_thread(image.discard)
                raise DriverTransient(f"cannot keep the memory of {handle}; its files are kept: {problem}")

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        async with self._locks.of(handle):
            directory = self._directory(handle)
            found = await self.inspect(handle)
            if found.busy:  # ending it would throw away the memory that it is about to have back
                raise DriverTransient(f"{handle} is being brought back on behalf of another daemon; try again")
            if found.state is not SandboxState.STOPPED:
                raise DriverConflict(f"{handle} is running already")
            await self._end(handle, directory)  # of a start that was cut off
            image = MemoryImage(directory)
            try:
                await asyncio.to_thread(image.clean if memory else image.discard)
                await self._spaces.of(directory).mount()
                home = SandboxHome(directory, self._ready())
                await asyncio.to_thread(home.hide_again)
                if not await asyncio.to_thread(image.exists):
                    await asyncio.to_thread(home.mask_again)
                return await self._start_made(handle, directory)
            except OSError as error:
                raise DriverTransient(f"cannot start the sandbox in {directory}: {error}") from error

    async def _start_from(self, image: MemoryImage, handle: Handle, directory: Path) -> None:
        """Start from an image of memory. If it fails, nothing of the attempt is left, and the image is as it was."""
        command = (*self._call(directory), "restore", "--detach", "--image-path", str(image.path))
        try:
            await self._start_by(image.then_retire(command), handle, directory)
        except DriverTransient:
            await self._end(handle, directory)
            await self._put_away(directory)
            raise
        await asyncio.to_thread(image.clean)

    # -- snapshots -------------------------------------------------------------------------------------------------

    async def snapshot(self, handle: Handle, to: Path, *, memory: bool = False, lasting: bool = True) -> None:
        directory = self._directory(handle)
        async with self._locks.of(handle):
            # Its directory tells all; asking the runtime would cost a process.
            if not await asyncio.to_thread(directory.is_dir):
                raise SandboxNotFound(f"there is no sandbox {handle}")
            if memory and not await asyncio.to_thread(MemoryImage(directory).exists):
                raise DriverUnsupported(f"the memory of {handle} is not on disk; checkpoint it first")
            init = await asyncio.to_thread(self._writer, handle, directory)
            await self._spaces.of(directory).snapshot(to, lasting=lasting, init=init, memory=memory)

    def _writer(self, handle: Handle, directory: Path) -> int | None:
        """Return the process to stop with all below it, so that nothing is written; None where nothing runs."""
        init = init_process(directory)
        return init.pid if init and not (self._can_freeze and freezer.is_frozen(self._names.of(handle))) else None
