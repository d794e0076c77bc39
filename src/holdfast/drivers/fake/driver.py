"""A driver in memory, for tests: fails, hangs and loses sandboxes on demand; its runners speak the real protocol.

The sandboxes are in a ``FakeWorld``, which outlives drivers as a machine outlives daemons:

    world = FakeWorld()
    old = FakeDriver(world)
    old.inject("create", error=DriverTransient("the disk is slow today"), times=2)
    ...
    new = FakeDriver(world)     # the daemon was restarted; its sandboxes are still there
"""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.drivers.base import (
    Capabilities,
    Check,
    DiskUse,
    Driver,
    Handle,
    OomCounter,
    SandboxInfo,
    SandboxSpec,
    SandboxState,
    SandboxStats,
)
from holdfast.drivers.disk import snapshot_place
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.fake.faults import Faulty
from holdfast.drivers.fake.runner import HOME, FakeRunner
from holdfast.errors import DriverConflict, DriverUnsupported, SandboxNotFound
from holdfast.records.limits import Network

_HANDLE_PREFIX = "fake:"
_NOTHING_USED = SandboxStats(cpu_seconds=0.0, memory_bytes=0, processes=0, oom_kills=0)
_EMPTY_DISK = DiskUse(allocated=0, used=0)
_CAPABILITIES = Capabilities(
    isolation=False, pause=True, stop=True, memory=True, snapshot=True, workspace=True, networks=frozenset(Network)
)
FakeFiles = dict[str, bytes]
_FILES = "files.json"
_LIFE = ("create", "destroy", "pause", "resume", "stop", "checkpoint", "start", "snapshot", "restore")
_METHODS = ("check", "prepare", *_LIFE, "forget_snapshot", "remove_workspace", "inspect", "stats", "disk_use", "list")


@dataclass(slots=True)
class FakeSandbox:
    """One sandbox; without a runner its creation was cut off."""

    spec: SandboxSpec
    runner: FakeRunner | None = None
    oom_killed: bool = False
    paused: bool = False
    stats: SandboxStats = _NOTHING_USED
    disk: DiskUse = _EMPTY_DISK
    files: FakeFiles = field(default_factory=dict)
    """The same object as its runner's."""

    @property
    def state(self) -> SandboxState:
        if self.runner is None:
            return SandboxState.CREATED
        if not self.runner.alive or self.runner.asleep:
            return SandboxState.STOPPED
        return SandboxState.PAUSED if self.paused else SandboxState.RUNNING

    def keep_workspace(self) -> None:
        """Save the files of a named workspace on disk, because they outlive the sandbox."""
        if self.spec.workspace is not None:
            kept = {path: data for path, data in self.files.items() if _is_in_workspace(path)}
            _save_files(self.spec.workspace, kept)


class FakeOomCounter(OomCounter):
    """Reads what the test has set."""

    def __init__(self, sandbox: FakeSandbox) -> None:
        self._sandbox = sandbox

    def read(self) -> int:
        return self._sandbox.stats.oom_kills or 0

    def close(self) -> None:
        pass


class FakeWorld:
    """The machine: the sandboxes in it survive the drivers."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, FakeSandbox] = {}

    async def close(self) -> None:
        """End all runners, at the end of a test."""
        for sandbox in self.sandboxes.values():
            if sandbox.runner is not None:
                await sandbox.runner.kill()
        self.sandboxes.clear()


class FakeDriver(Faulty, Driver):
    """One daemon's view of a world. Faults in the middle are for create, restore, destroy and snapshot only."""

    name = "fake"

    def __init__(self, world: FakeWorld | None = None, *, capabilities: Capabilities = _CAPABILITIES) -> None:
        super().__init__(_METHODS)
        self.world = world or FakeWorld()
        self._capabilities = capabilities

    # -- what a test does ------------------------------------------------------------------------------------------

    async def kill(self, session_id: str, *, oom: bool = False) -> None:
        """Let the sandbox die: its link drops, and the driver sees it as stopped."""
        sandbox = self._sandbox(session_id)
        sandbox.oom_killed = oom
        if sandbox.runner is not None:
            await sandbox.runner.kill()

    def oom_kill(self, session_id: str) -> None:
        """Count a process, not the runner, as killed by the kernel for lack of memory."""
        sandbox = self._sandbox(session_id)
        sandbox.stats = replace(sandbox.stats, oom_kills=(sandbox.stats.oom_kills or 0) + 1)

    def freeze(self, session_id: str) -> None:
        """Let the runner take calls without answering until ``thaw``; these calls stay unanswered."""
        self._runner(session_id).frozen = True

    def thaw(self, session_id: str) -> None:
        self._runner(session_id).frozen = False

    def fill_disk(self, session_id: str) -> None:
        """Let all writes in the sandbox fail until ``free_disk``."""
        self._runner(session_id).full = True

    def free_disk(self, session_id: str) -> None:
        self._runner(session_id).full = False

    def cut_link(self, session_id: str) -> None:
        """Drop the connection; commands go on, and the runner dials again."""
        self._runner(session_id).cut()

    async def forget(self, session_id: str) -> None:
        """Let the sandbox vanish: ``inspect`` raises SandboxNotFound."""
        await self.kill(session_id)
        del self.world.sandboxes[session_id]

    def _runner(self, session_id: str) -> FakeRunner:
        runner = self._sandbox(session_id).runner
        if runner is None:
            raise LookupError(f"the sandbox of {session_id} is half made: it has no runner")
        return runner

    def _sandbox(self, session_id: str) -> FakeSandbox:
        return self.world.sandboxes[session_id]

    # -- the contract ----------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def check(self) -> Sequence[Check]:
        await self._strike("check", "before", "")
        return (Check("fake", True, "needs nothing"),)

    async def prepare(self) -> None:
        await self._strike("prepare", "before", "")

    async def create(self, spec: SandboxSpec) -> Handle:
        return await self._make("create", spec, {})

    async def _make(self, method: str, spec: SandboxSpec, files: FakeFiles) -> Handle:
        session_id = spec.session_id
        await self._strike(method, "before", session_id)
        existing = self.world.sandboxes.get(session_id)
        if existing is not None and existing.state is SandboxState.RUNNING:
            raise DriverConflict(f"there is a running sandbox of {session_id} already")
        if existing is not None:
            existing.keep_workspace()
        files = self._with_workspace(spec, files)
        sandbox = self.world.sandboxes[session_id] = FakeSandbox(spec, files=files)
        sandbox.keep_workspace()
        await self._strike(method, "middle", session_id)
        sandbox.runner = FakeRunner(spec, files)
        await self._strike(method, "after", session_id)
        return self.handle_for(session_id)

    def _with_workspace(self, spec: SandboxSpec, files: FakeFiles) -> FakeFiles:
        if spec.workspace is None:
            return files
        holder = self._holder(spec.workspace)
        if holder not in (None, spec.session_id):
            raise DriverConflict(f"the workspace {spec.workspace.name} is in use by {holder}")
        spec.workspace.mkdir(parents=True, exist_ok=True)
        rest = {path: content for path, content in files.items() if not _is_in_workspace(path)}
        return rest | _load_files(spec.workspace)

    def _holder(self, workspace: Path) -> str | None:
        return next((name for name, box in self.world.sandboxes.items() if box.spec.workspace == workspace), None)

    async def destroy(self, handle: Handle) -> None:
        session_id = _session_of(handle)
        await self._strike("destroy", "before", session_id)
        sandbox = self.world.sandboxes.get(session_id)
        if sandbox is not None and sandbox.runner is not None:
            await sandbox.runner.kill()
        await self._strike("destroy", "middle", session_id)
        if sandbox is not None:
            sandbox.keep_workspace()
        self.world.sandboxes.pop(session_id, None)
        await self._strike("destroy", "after", session_id)

    async def pause(self, handle: Handle) -> None:
        async with self._asked("pause", handle) as sandbox:
            sandbox.paused = True
            self._runner(sandbox.spec.session_id).going.clear()

    async def resume(self, handle: Handle) -> None:
        async with self._asked("resume", handle) as sandbox:
            sandbox.paused = False
            self._runner(sandbox.spec.session_id).going.set()

    async def stop(self, handle: Handle) -> None:
        async with self._asked("stop", handle) as sandbox:
            if sandbox.runner is not None:
                await sandbox.runner.kill()
            sandbox.paused = False

    async def checkpoint(self, handle: Handle) -> None:
        async with self._asked("checkpoint", handle) as sandbox:
            self._runner(sandbox.spec.session_id).asleep = True

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        async with self._asked("start", handle) as sandbox:
            if sandbox.state is not SandboxState.STOPPED:
                raise DriverConflict(f"there is a running sandbox of {sandbox.spec.session_id} already")
            kept = memory and sandbox.runner is not None and sandbox.runner.alive
            if sandbox.runner is not None and kept:
                sandbox.runner.asleep = False
            else:
                if sandbox.runner is not None:
                    await sandbox.runner.kill()
                sandbox.runner = FakeRunner(sandbox.spec, sandbox.files)
        return kept

    async def snapshot(self, handle: Handle, to: Path, *, memory: bool = False, lasting: bool = True) -> None:
        async with self._asked("snapshot", handle) as sandbox:
            if memory:
                raise DriverUnsupported("the fake driver keeps memory for the same sandbox only")
            scratch, spec = snapshot_place.begin(to), sandbox.spec
            _save_files(scratch, sandbox.files)
            await self._strike("snapshot", "middle", spec.session_id)
            SnapshotFacts(self.name, spec.image.name, spec.limits.disk_mb, spec.writable_root).write(scratch)
            snapshot_place.finish(to, lasting=False)

    async def restore(self, spec: SandboxSpec, source: Path, *, consume: bool = False) -> Handle:
        SnapshotFacts.read(source).check(spec, self)
        return await self._make("restore", spec, _load_files(source))

    async def forget_snapshot(self, source: Path) -> None:
        async with self._struck("forget_snapshot", ""):
            snapshot_place.remove(source)

    async def remove_workspace(self, workspace: Path) -> None:
        async with self._struck("remove_workspace", ""):
            holder = self._holder(workspace)
            if holder is not None:
                raise DriverConflict(f"the workspace {workspace.name} is in use by {holder}")
            remove_tree(workspace)

    @asynccontextmanager
    async def _asked(self, method: str, handle: Handle) -> AsyncIterator[FakeSandbox]:
        """The sandbox that a call is about, between the call's faults."""
        session_id = _session_of(handle)
        async with self._struck(method, session_id):
            if session_id not in self.world.sandboxes:
                raise SandboxNotFound(f"there is no sandbox of {session_id}")
            yield self._sandbox(session_id)

    async def inspect(self, handle: Handle) -> SandboxInfo:
        async with self._asked("inspect", handle) as sandbox:
            return self._info(sandbox)

    async def stats(self, handle: Handle) -> SandboxStats:
        async with self._asked("stats", handle) as sandbox:
            return sandbox.stats

    async def disk_use(self) -> Mapping[str, DiskUse]:
        await self._strike("disk_use", "before", "")
        return {session_id: sandbox.disk for session_id, sandbox in self.world.sandboxes.items()}

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        sandbox = self.world.sandboxes.get(_session_of(handle))
        return None if sandbox is None else FakeOomCounter(sandbox)

    async def list(self) -> Sequence[SandboxInfo]:
        await self._strike("list", "before", "")
        return [self._info(sandbox) for sandbox in self.world.sandboxes.values()]

    def handle_for(self, session_id: str) -> Handle:
        return Handle(_HANDLE_PREFIX + session_id)

    def _info(self, sandbox: FakeSandbox) -> SandboxInfo:
        session_id = sandbox.spec.session_id
        memory = sandbox.runner is not None and sandbox.runner.alive and sandbox.runner.asleep
        return SandboxInfo(self.handle_for(session_id), session_id, sandbox.state, sandbox.oom_killed, memory)


def _session_of(handle: Handle) -> str:
    session_id = handle.removeprefix(_HANDLE_PREFIX)
    if session_id == handle:
        raise DriverUnsupported(f"{handle[:100]!r} is no handle of the fake driver")
    return session_id


def _save_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a fake sandbox to disk, for a snapshot or a named workspace."""
    text = json.dumps({path: base64.b64encode(content).decode() for path, content in files.items()})
    (directory / _FILES).write_text(text)


def _load_files(directory: Path) -> FakeFiles:
    """Read what ``_save_files`` wrote; empty if there is nothing."""
    try:
        content = json.loads((directory / _FILES).read_text())
    except FileNotFoundError:
        return {}
    return {path: base64.b64decode(text) for path, text in content.items()}


def _is_in_workspace(path: str) -> bool:
    return path.startswith(f"{HOME}/")
