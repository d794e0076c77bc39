"""Sandboxes as containers of a Docker daemon on this machine.

Docker starts and stops them; all else is as with the oci driver: the runner dials a socket in a directory of the host
that is mounted inside, so that an exec never passes through Docker. Everything of ours about one sandbox is in
``<state>/docker/<session id>/``. The container's labels say whose it is. Its name is as ``names`` says, or the
session's id if an earlier version made it.
"""

import asyncio
import contextlib
import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.drivers import runtime_bundle
from holdfast.drivers.base import (
    Capabilities,
    Check,
    Handle,
    OomCounter,
    SandboxInfo,
    SandboxSpec,
    SandboxState,
    SandboxStats,
    require,
)
from holdfast.drivers.blocking import run_to_the_end
from holdfast.drivers.commands import finish_despite_cancel
from holdfast.drivers.disk.space import Space, Spaces
from holdfast.drivers.disk.space_driver import HANDLE, FillSpace, SpaceDriver
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.docker import config as docker_config
from holdfast.drivers.docker import skeleton as docker_skeleton
from holdfast.drivers.docker.client import DockerClient, JsonObject
from holdfast.drivers.docker.config import DockerHost
from holdfast.drivers.docker.home import DockerHome
from holdfast.drivers.docker.machine import DockerMachine, examine
from holdfast.drivers.inside import LABEL_SESSION, LABEL_STATE_DIR
from holdfast.drivers.linux import cgroup_stats, cgroups, withheld
from holdfast.drivers.linux.kernel_limits import process_limits
from holdfast.drivers.linux.slirp import Slirp
from holdfast.drivers.names import machine_name
from holdfast.errors import (
    DriverConflict,
    DriverTransient,
    DriverUnsupported,
    RuntimeUnavailable,
    SandboxNotFound,
)
from holdfast.network.addresses import Block
from holdfast.records.limits import Network

_END_SECONDS = 20.0
_ROUND_SECONDS = 0.05
_STATES = {
    "created": SandboxState.CREATED,
    "running": SandboxState.RUNNING,
    "paused": SandboxState.PAUSED,
}
"""Docker's other states (exited, dead, removing) are all ``STOPPED``."""


class DockerDriver(SpaceDriver):
    """Sandboxes as Docker containers."""

    name = "docker"

    def __init__(self, state_dir: Path, *, host: str, opened: Sequence[Block] = ()) -> None:
        """``opened``: internal addresses that sandboxes with a full network may reach."""
        super().__init__(state_dir / "docker")
        self._opened = opened
        self._state_dir = state_dir
        self._suffix = machine_name("", state_dir)
        self._client = DockerClient(host)
        self._machine: DockerMachine | None = None
        self._host: DockerHost | None = None

    # -- the machine -----------------------------------------------------------------------------------------------

    async def check(self) -> Sequence[Check]:
        # A client of its own: doctor closes no driver.
        client = DockerClient(self._client.host)
        try:
            return (await examine(client)).checks
        finally:
            await client.close()

    async def prepare(self) -> None:
        withheld.OF_THIS_HOST.begin(Path("/usr"))  # before all else: no sandbox is made without its result
        machine = await examine(self._client)
        try:
            require(machine.checks, self.name)
        except RuntimeUnavailable:
            await self._client.close()
            raise
        self._home.mkdir(parents=True, exist_ok=True)
        for directory in (self._state_dir, self._home):
            directory.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
        self._host = DockerHost(
            bundle=await asyncio.to_thread(runtime_bundle.build, self._state_dir / "runtime-bundle"),
            owner=os.geteuid(),
            id_base=machine.id_base,
            open_files=min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            counts=process_limits(shared=True),
            machine=os.uname().machine,
        )
        self._machine = machine
        await asyncio.to_thread(self._spaces.thaw_all)

    async def close(self) -> None:
        await self._client.close()

    @property
    def capabilities(self) -> Capabilities:
        machine = self._ready()[0]
        return Capabilities(
            isolation=True,
            pause=True,
            stop=True,
            snapshot=True,
            workspace=True,
            memory_limit="memory" in machine.limits,
            cpu_limit="cpu" in machine.limits,
            pids_limit="pids" in machine.limits,
            disk_limit=machine.loop_disks,
            user_namespace=machine.id_base != 0,
            networks=frozenset(Network) if machine.full_network.ok else frozenset({Network.NONE}),
            network_remedy=machine.full_network.remedy,
        )

    @property
    def root_id(self) -> int | None:
        host = self._ready()[1]
        return host.id_base if host.privileged else None

    def _ready(self) -> tuple[DockerMachine, DockerHost]:
        if self._machine is None or self._host is None:
            raise RuntimeUnavailable("the docker driver was not prepared")
        return self._machine, self._host

    # -- making and removing ---------------------------------------------------------------------------------------

    def _name(self, session_id: str) -> str:
        return session_id + self._suffix

    def _of(self, handle: Handle) -> DockerHome:
        return DockerHome(self._directory(handle), self._ready()[1])

    @property
    def _spaces(self) -> Spaces:
        return Spaces(self._home, self._ready()[0].loop_disks, self.root_id)

    def _space(self, home: DockerHome) -> Space:
        return self._spaces.of(home.directory)

    async def _make(self, spec: SandboxSpec, fill_space: FillSpace) -> Handle:
        if spec.writable_root and not self._ready()[1].privileged:
            raise DriverUnsupported("writable_root: under driver docker only a daemon that is root can offer it")
        return await super()._make(spec, fill_space)

    async def _build(self, spec: SandboxSpec, fill_space: FillSpace) -> None:
        """Make the directory, then the container: by the directory, ``list`` shows a sandbox that was cut off here."""
        host, home = self._ready()[1], self._of(self.handle_for(spec.session_id))
        space = self._space(home)
        await run_to_the_end(space.make_home)
        await fill_space(space)
        skeleton = await asyncio.to_thread(docker_skeleton.survey, spec.image.layout)
        places = await run_to_the_end(home.fill, spec, skeleton, space)
        config = docker_config.build(spec, host, places, skeleton, self._state_dir)
        await asyncio.to_thread(home.keep_request, config)
        name = self._name(spec.session_id)
        await finish_despite_cancel(self._create_container(name, config, skeleton))
        await finish_despite_cancel(self._run(name, home, spec.network))

    async def _create_container(self, name: str, config: JsonObject, skeleton: docker_skeleton.Skeleton) -> None:
        if await self._client.create(name, config):
            return
        await self._client.load(docker_skeleton.archive(skeleton, self._ready()[1].machine))
        if not await self._client.create(name, config):
            raise DriverTransient(f"Docker has lost the image {config['Image']} that it has just loaded")

    async def _run(self, container: str, home: DockerHome, network: Network) -> None:
        """Start the container, find its cgroups and give it its network."""
        await self._client.act("start", container)
        found = await self._client.show(container)
        pid = _pid(found)
        groups = await asyncio.to_thread(cgroups.of_process, pid)
        # Docker's name for the container is in its cgroups' names, whatever the rest is; others must never be ours.
        groups = {name: path for name, path in groups.items() if found and str(found.get("Id")) in path.name}
        if not groups:
            raise DriverTransient(f"Docker has started {container}, but its process ended at once")
        try:
            await asyncio.to_thread(home.note_cgroups, groups)
            if os.geteuid() == 0:  # nobody else may change the cgroups that Docker has made
                await asyncio.to_thread(cgroups.limit_socket_buffers, cgroups.within(groups, "memory"))
            if network is Network.FULL:
                await Slirp(home.directory, rootless=False, opened=self._opened).start(pid, list(groups.values()))
        except OSError as error:
            raise DriverTransient(f"cannot finish {container}: {error}") from error

    async def _destroy(self, handle: Handle) -> None:
        home = self._of(handle)
        try:
            # It lives in the container's cgroups, which go with the container.
            await run_to_the_end(Slirp(home.directory, rootless=False).stop)
            await self._remove_container(handle)
            await asyncio.to_thread(cgroups.remove_each, home.cgroups().values())
            await run_to_the_end(home.unmount)
            await self._space(home).remove()
            await run_to_the_end(remove_tree, home.directory)
        except OSError as error:
            raise DriverTransient(f"cannot remove what is left of {handle}: {error}") from error

    async def _remove_container(self, handle: Handle) -> None:
        """Remove the container, and return when it is gone, whoever else removes it at the same time."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                while (found := await self._show(handle)) is not None:
                    try:
                        if _state(found) is SandboxState.PAUSED:
                            await self._client.act("unpause", _id(found))
                        await self._client.remove(_id(found))
                    except SandboxNotFound:
                        return
                    except DriverConflict:  # somebody else removes, or resumes, it right now
                        await asyncio.sleep(_ROUND_SECONDS)
        except TimeoutError:
            raise DriverTransient(f"Docker has not removed {handle} after {_END_SECONDS:.0f} s") from None

    # -- asleep and awake ------------------------------------------------------------------------------------------

    async def pause(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            found = await self._existing(handle)
            if _state(found) is not SandboxState.PAUSED:
                await self._client.act("pause", _id(found))

    async def resume(self, handle: Handle) -> None:
        async with self._locks.of(handle):
            found = await self._existing(handle)
            if _state(found) is SandboxState.PAUSED:
                await self._client.act("unpause", _id(found))

    async def stop(self, handle: Handle) -> None:
        home = self._of(handle)
        async with self._locks.of(handle):
            found = await self._container_if_kept(handle, home)
            await run_to_the_end(Slirp(home.directory, rootless=False).stop)
            if found is not None:
                await self._end(found)
            try:
                await run_to_the_end(home.unmount)
                await self._space(home).unmount()
            except OSError as error:
                raise DriverTransient(f"cannot unmount what belongs to {handle}: {error}") from error

    async def _end(self, found: JsonObject) -> None:
        """Kill the container's processes, and return when they have ended."""
        state, container = _state(found), _id(found)
        if state is SandboxState.PAUSED:
            await self._client.act("unpause", container)
        if state in (SandboxState.RUNNING, SandboxState.PAUSED):
            with contextlib.suppress(DriverConflict):  # it has ended by itself
                await self._client.act("kill", container)
            await self._client.act("wait", container)

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        home = self._of(handle)
        async with self._locks.of(handle):
            found = await self._container_if_kept(handle, home)
            if found and _state(found) in (SandboxState.RUNNING, SandboxState.PAUSED):
                raise DriverConflict(f"{handle} is running already")
            request = None if found else await self._kept_request(handle, home)
            try:
                facts = await asyncio.to_thread(home.facts)
                await self._space(home).mount()
                await run_to_the_end(home.mount, facts)
                skeleton = await asyncio.to_thread(docker_skeleton.survey, Path(facts.layout))
            except (OSError, ValueError, TypeError) as error:
                raise DriverTransient(f"cannot prepare the sandbox in {home.directory}: {error}") from error
            if request is not None:
                request = {**request, "Image": docker_skeleton.tag(skeleton, self._ready()[1].machine)}
                await finish_despite_cancel(self._create_container(self._name(handle), request, skeleton))
            container = _id(found) if found else self._name(handle)
            await finish_despite_cancel(self._run(container, home, Network(facts.network)))
            return False

    async def _kept_request(self, handle: Handle, home: DockerHome) -> JsonObject:
        """Return what makes a container again that somebody has removed: ``docker system prune`` takes all that are
        stopped."""
        try:
            return await asyncio.to_thread(home.request)
        except (OSError, ValueError):  # made by an earlier version
            raise SandboxNotFound(f"there is no container {handle}") from None

    # -- snapshots -------------------------------------------------------------------------------------------------

    async def snapshot(self, handle: Handle, to: Path, *, memory: bool = False, lasting: bool = True) -> None:
        home = self._of(handle)
        if memory:
            raise DriverUnsupported("the docker driver cannot keep memory")
        async with self._locks.of(handle):
            found = await self._container_if_kept(handle, home)
            init = _pid(found) if found and _state(found) is SandboxState.RUNNING else None
            await self._space(home).snapshot(to, lasting=lasting, init=init)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _show(self, handle: Handle) -> JsonObject | None:
        """Return the container if it is one of ours; the name alone could be anybody's."""
        for name in (self._name(handle), handle):
            found = await self._client.show(name)
            config = found.get("Config") if found else None
            labels = config.get("Labels") if isinstance(config, dict) else None
            if isinstance(labels, dict) and labels.get(LABEL_STATE_DIR) == str(self._state_dir):
                return found
        return None

    async def _existing(self, handle: Handle) -> JsonObject:
        """Return the container itself; a directory without one cannot be frozen or thawed."""
        self._of(handle)
        found = await self._show(handle)
        if found is None:
            raise SandboxNotFound(f"there is no container {handle}")
        return found

    async def _container_if_kept(self, handle: Handle, home: DockerHome) -> JsonObject | None:
        """Return the container, or None if only the sandbox's own directory is left."""
        found = await self._show(handle)
        if found is None and not await asyncio.to_thread(home.directory.exists):
            raise SandboxNotFound(f"there is no sandbox {handle}")
        return found

    async def inspect(self, handle: Handle) -> SandboxInfo:
        home = self._of(handle)
        found = await self._show(handle)
        if found is not None:
            state = _state(found)
            return SandboxInfo(handle, handle, state, oom_killed=state is SandboxState.STOPPED and _oom_killed(found))
        if await asyncio.to_thread(home.directory.exists):
            return SandboxInfo(handle, handle, SandboxState.STOPPED)
        raise SandboxNotFound(f"there is no sandbox {handle}")

    async def list(self) -> Sequence[SandboxInfo]:
        # Before Docker is asked: what is destroyed in between may be listed once more, but nothing is missed.
        names = await self._homes()
        found = {name: SandboxInfo(Handle(name), name, SandboxState.STOPPED) for name in names}
        for labels, state in await self._client.list_labelled(LABEL_STATE_DIR, str(self._state_dir)):
            name = labels.get(LABEL_SESSION, "")
            if HANDLE.fullmatch(name):
                found[name] = SandboxInfo(Handle(name), name, _STATES.get(state, SandboxState.STOPPED))
        return list(found.values())

    def _stats(self, handle: Handle) -> SandboxStats:
        home = self._of(handle)
        if not home.directory.is_dir():
            raise SandboxNotFound(f"there is no sandbox {home.directory.name}")
        groups = home.cgroups()
        used = cgroup_stats.read(lambda controller: cgroups.within(groups, controller)) if groups else None
        disk, limit = self._space(home).usage()
        return replace(used or SandboxStats(), disk_bytes=disk, disk_limit_bytes=limit)

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        groups = self._of(handle).cgroups()
        return cgroup_stats.CgroupOomCounter.of(cgroups.within(groups, "memory")) if groups else None


def _container_state(found: JsonObject | None) -> JsonObject:
    state = found.get("State") if found else None
    return state if isinstance(state, dict) else {}


def _state(found: JsonObject) -> SandboxState:
    return _STATES.get(str(_container_state(found).get("Status")), SandboxState.STOPPED)


def _id(found: JsonObject) -> str:
    """Docker's own name of a container, by which it is found whatever we have called it."""
    return str(found["Id"])


def _oom_killed(found: JsonObject) -> bool:
    return _container_state(found).get("OOMKilled") is True


def _pid(found: JsonObject | None) -> int:
    """Return the host's number of the container's first process; 0 if it has none."""
    pid = _container_state(found).get("Pid")
    return pid if isinstance(pid, int) else 0
