"""The contract of a driver: the thing that makes, finds and destroys the place that a session runs in.

A driver starts the runner inside that place and nothing else. Exec, files and ports go over the link, so a driver
never runs a command for a caller. It keeps no state in memory that it could not lose: a ``Handle`` is enough for
another process, on the same host, to find the sandbox again.

``holdfast.drivers.conformance`` is the suite that every driver passes; it is the executable form of the
docstrings below.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NewType

from holdfast.drivers.disk.allocation import allocated_bytes
from holdfast.errors import BadInput, DriverUnsupported, RuntimeUnavailable
from holdfast.records.limits import Limits, Network
from holdfast.records.services import ServiceSpecs

Handle = NewType("Handle", str)
"""Opaque to everybody but the driver that made it; at most 2 KB of text; holds no secret."""


class SandboxState(StrEnum):
    """What a driver can see of a sandbox."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """An image, resolved to something on disk that a driver can start from.

    ``layout`` is a directory whose top-level entries become the sandbox's top-level entries. ``binds`` maps a path
    inside the sandbox to a host directory that is shown there read-only instead (the ``host`` image's ``/usr``).
    ``masked`` are paths inside that must look empty. ``env`` is what the image wants in the environment; what the
    session wants comes first. ``services`` are the programs that it declares, to be started when somebody wants them;
    a driver need not look at them.
    """

    name: str
    layout: Path
    binds: Mapping[str, Path] = field(default_factory=dict)
    masked: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    services: ServiceSpecs = ()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """All that a driver needs to know to make one sandbox.

    ``link_dir`` is a host directory with the socket that the runner dials; it must be visible inside.
    ``token`` is what the runner proves itself with; it must not be readable by the processes that the runner starts.
    ``workspace`` is where a named workspace is kept on the host: a directory that belongs to the driver from its first
    use until ``remove_workspace``, with a limit of that first sandbox's ``disk_mb``. Other users must be able to pass
    through those above it. What is in it is shown at ``/workspace`` instead of the sandbox's own, and outlives it.
    """

    session_id: str
    image: ImageRoot
    limits: Limits
    network: Network
    writable_root: bool
    env: Mapping[str, str]
    link_dir: Path
    token: str
    workspace: Path | None = None


def check_environment(env: Mapping[str, str]) -> None:
    """Raises ``BadInput`` for what no process can have in its environment. For drivers to call first in ``create``."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise BadInput(f"env: {name!r} cannot be in an environment: no NULs, and no = in the name")


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """One sandbox as it is now."""

    handle: Handle
    session_id: str
    state: SandboxState
    oom_killed: bool = False
    memory: bool = False
    """Stopped, with its memory kept by ``checkpoint``."""
    busy: bool = False
    """Somebody is still at a checkpoint, or at bringing its memory back, on behalf of a daemon that may be dead; how it
    will end is not known yet."""


@dataclass(frozen=True, slots=True)
class SandboxStats:
    """What a sandbox uses, all its processes together. None is what cannot be known here; a number is never a guess.

    ``memory_bytes`` is what could not be taken away from it at once: without the cache of files that it no longer
    reads. ``processes`` counts threads too, as the limit does. ``disk_bytes`` and ``disk_limit_bytes`` are of its
    writable space; how much fits is a little less than the limit asked for, by what a file system needs for itself.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    processes: int | None = None
    oom_kills: int | None = None
    disk_bytes: int | None = None
    disk_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What one sandbox's disk takes of the host's, in bytes.

    ``allocated`` has been taken. ``used`` is in use inside, which may be less, since nothing was given back yet, or
    more: what its programs have written and the kernel has not, but will.
    """

    allocated: int
    used: int

    @property
    def owed(self) -> int:
        """What the kernel will still take of the host's disk, whatever becomes of the sandbox's processes."""
        return max(0, self.used - self.allocated)

    @property
    def taken(self) -> int:
        return max(self.used, self.allocated)


class OomCounter(ABC):
    """How often the kernel has killed a process of one sandbox for want of memory, as a number that only grows."""

    @abstractmethod
    def read(self) -> int:
        """Return the count now. This takes microseconds and never blocks: it is read before and after every command."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what reading needs; twice is fine."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a driver can do on this machine; callers ask before they try."""

    isolation: bool
    pause: bool = False
    """``pause`` and ``resume``: in memory."""
    stop: bool = False
    """``stop`` and ``start``: the files stay."""
    memory: bool = False
    """``checkpoint``: the files stay, and so do the processes, on disk."""
    memory_copies: bool = False
    """``snapshot`` with memory, of a sandbox whose memory is on disk, and ``restore`` of that under another id."""
    snapshot: bool = False
    """``snapshot`` and ``restore``."""
    workspace: bool = False
    """``SandboxSpec.workspace`` and ``remove_workspace``; without it such a spec is ``DriverUnsupported``."""
    memory_limit: bool = False
    cpu_limit: bool = False
    pids_limit: bool = False
    disk_limit: bool = False
    user_namespace: bool = True
    """Where there is isolation: whether the sandbox's root is nobody on the host."""
    private_counts: bool = False
    """Whether what the kernel counts per user (watches, queued signals, queues, pipes) is counted for each alone."""
    networks: frozenset[Network] = frozenset({Network.NONE})
    network_remedy: str = ""
    """What to do to have the networks that are missing here."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``holdfast doctor``. ``remedy`` is a command or a sentence that a person can act on."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    fatal: bool = True


def require(checks: Sequence[Check], driver: str) -> None:
    """Raise ``RuntimeUnavailable`` if one of these has failed without which the driver cannot work."""
    failed = [check for check in checks if check.fatal and not check.ok]
    if failed:
        reasons = "; ".join(f"{check.name}: {check.detail}. {check.remedy}" for check in failed)
        raise RuntimeUnavailable(f"the {driver} driver cannot work here: {reasons}")


class Driver(ABC):
    """Where sessions run. All methods may be called from several tasks at once, for different sandboxes.

    Errors: ``SandboxNotFound`` only where the driver looked and the sandbox is certainly absent.
    ``RuntimeUnavailable`` where the machine cannot do it at all, with the remedy in the message.
    ``DriverQuota``, ``DriverConflict``, ``DriverUnauthorized`` as their names say. Anything else is
    ``DriverTransient``. No other exception leaves a driver.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this driver can do here. Valid after ``prepare``."""

    @property
    def root_id(self) -> int | None:
        """The host's id of the sandboxes' root, whom images are given to; None where they stay the daemon's own.

        Valid after ``prepare``.
        """
        return None

    @abstractmethod
    async def check(self) -> Sequence[Check]:
        """Look at the machine and say what is missing. Changes nothing and never raises."""

    @abstractmethod
    async def prepare(self) -> None:
        """Get ready to make sandboxes; called once when the daemon starts. Raises ``RuntimeUnavailable``."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> Handle:
        """Make a sandbox and start the runner in it; return when the runner's process exists.

        The runner may not have dialled yet. Idempotent per ``session_id``: leftovers of a create that was cut off
        are removed first; a sandbox that is already running raises ``DriverConflict``. When it fails, or is
        cancelled, nothing is left behind that ``list`` would not show.
        """

    @abstractmethod
    async def destroy(self, handle: Handle) -> None:
        """Kill everything in the sandbox and remove all that belongs to it, in any state, also half made.

        Returns when it is gone; a sandbox that is already gone is success. The session's writable files go with it.
        """

    @abstractmethod
    async def inspect(self, handle: Handle) -> SandboxInfo:
        """Return how the sandbox is now. Raises ``SandboxNotFound`` if, and only if, there is none."""

    @abstractmethod
    async def list(self) -> Sequence[SandboxInfo]:
        """Return every sandbox that this driver made under this state directory, also stopped and half-made ones.

        Raises rather than returning an incomplete list: callers treat absence from it as proof.
        """

    @abstractmethod
    async def stats(self, handle: Handle) -> SandboxStats:
        """What the sandbox uses now. Raises ``SandboxNotFound`` if there is none. Cheap enough to ask of hundreds."""

    def oom_counter(self, handle: Handle) -> OomCounter | None:
        """A counter of the running sandbox's deaths by memory; None where they cannot be counted. Does not block."""
        return None

    @abstractmethod
    def handle_for(self, session_id: str) -> Handle:
        """The handle that ``create`` gives, or would give, this session: how a half-done create is found again."""

    async def stop(self, handle: Handle) -> None:
        """Kill all processes but keep the files, so that ``start`` can bring the sandbox back.

        Returns when nothing of it runs or is mounted any more. From any state; twice is fine. ``inspect`` then says
        ``stopped``. Raises ``SandboxNotFound`` where there is none.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot stop and keep a sandbox")

    async def checkpoint(self, handle: Handle) -> None:
        """Like ``stop``, but memory is kept too: ``start`` lets every process go on where it stood.

        The caller has told the runner to quiesce. When it fails the sandbox runs as before, or is stopped with its
        files where the runtime left it no other way; ``inspect`` tells which.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot keep memory")

    async def start(self, handle: Handle, *, memory: bool = True) -> bool:
        """Start a stopped sandbox, with its files, limits and token as they were; returns whether its memory came back.

        Memory comes back if ``checkpoint`` kept it. ``memory=False`` throws that away and starts from the files: the
        way out when memory cannot be restored. Raises ``DriverConflict`` if it runs already, and ``SandboxNotFound``
        where there is none. When it fails, files and memory are as they were, and it may be tried again.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot start a stopped sandbox")

    async def pause(self, handle: Handle) -> None:
        """Freeze all processes in memory; return when they stand still. ``inspect`` then says ``paused``.

        Twice is fine. When it fails the sandbox runs as before.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot pause")

    async def resume(self, handle: Handle) -> None:
        """Let a paused sandbox go on. One that runs is left alone."""
        raise DriverUnsupported(f"the {self.name} driver cannot resume")

    async def snapshot(self, handle: Handle, to: Path, *, memory: bool = False, lasting: bool = True) -> None:
        """Write the sandbox's files to the new directory ``to``, completely or not at all; it goes on as before.

        From a running, paused or stopped sandbox. The files are as they were at one moment; those of a named workspace
        are among them. Shares blocks with the sandbox where the file system can, and never copies more than was
        written. ``memory``: also what ``checkpoint`` kept, for ``restore`` under another id; only of a sandbox that is
        stopped with its memory, else it is ``DriverUnsupported``. ``lasting=False``: a crash of the host may damage it,
        which makes it faster; for what is restored at once and then forgotten.

        The directory of ``to`` exists; until it is complete all of it is in a sibling with ``.new`` added to the name,
        which a later try replaces. With it goes ``snapshot.json`` (``drivers.snapshot_facts``). Raises
        ``SandboxNotFound`` where there is none, ``DriverQuota`` where the disk is full, ``DriverConflict`` where there
        is a ``to`` already.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot snapshot")

    async def restore(self, spec: SandboxSpec, source: Path, *, consume: bool = False) -> Handle:
        """``create``, with the files (and processes, if there are any) of what ``snapshot`` wrote.

        Any number of sandboxes may be made from one ``source``, which stays as it is. ``spec`` decides the limits; its
        disk may be larger than the snapshot's, and is never smaller: the snapshot's size holds then. Its image is used,
        and ought to be the one that the snapshot was made on. Its ``writable_root`` must be the snapshot's, or it is
        ``BadInput``. With ``spec.workspace`` that one is shown, and not the snapshot's ``/workspace``.

        Processes that come back take their runner with them, which still has the name and the token of the sandbox that
        it was in: the first welcome must tell it the new ones (``Link.former_token``).

        ``consume``: the source is good for this sandbox alone and may be changed, so that nothing need be copied; it
        must still be forgotten. Raises ``SnapshotBroken`` where no complete snapshot is, and ``DriverUnsupported`` for
        one of another driver, or of one that runs under other ids.
        """
        raise DriverUnsupported(f"the {self.name} driver cannot restore")

    async def forget_snapshot(self, source: Path) -> None:
        """Remove what ``snapshot`` wrote, also half of it; what is gone already is success."""
        raise DriverUnsupported(f"the {self.name} driver cannot snapshot")

    async def remove_workspace(self, workspace: Path) -> None:
        """Remove a named workspace with all its files; one that is gone already, or was never used, is success.

        Raises ``DriverConflict`` while a sandbox has it, in whatever state. A workspace is one sandbox's at a time:
        ``create`` with one that another has raises ``DriverConflict`` too. ``destroy`` gives it back; so does the
        sandbox's disappearance.
        """
        raise DriverUnsupported(f"the {self.name} driver has no named workspaces")

    async def measure(self, place: Path) -> int:
        """Return how many bytes of the host's disk a snapshot or a workspace takes; 0 where there is none.

        Blocks that it shares with others count in full, holes do not.
        """
        return await asyncio.to_thread(allocated_bytes, place)

    async def trim(self) -> None:  # noqa: B027 - most drivers hold nothing that could be given back
        """Give back to the host what the disks of all sandboxes hold and do not need any more."""

    async def disk_use(self) -> Mapping[str, DiskUse]:
        """What the disk of each sandbox takes of the host's; nothing of those for which it cannot be known cheaply.

        Looked at many times in a second while the host's disk is nearly full, so it must take microseconds for each.
        """
        return {}

    async def read_only(self) -> Sequence[str]:
        """Return the ids of sandboxes whose disks take no write any more, since the host's failed or was full.

        ``stop`` and ``start`` mend such a disk: what can be saved of it is there then.
        """
        return ()

    async def close(self) -> None:  # noqa: B027 - most drivers hold nothing
        """Let go of what this process holds. Sandboxes keep running."""
