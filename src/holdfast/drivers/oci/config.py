"""Makes an OCI runtime configuration (config.json) from a sandbox's spec. Pure: it looks at nothing but its arguments.

A sandbox gets its own user, pid, mount, network, ipc, uts and cgroup namespaces; no capability at all; no new
privileges; a seccomp allow-list; masked and read-only parts of /proc and /sys; a read-only root unless asked otherwise;
and limits by cgroup. Its writable places are ``/workspace``, ``/tmp`` and ``/var/tmp`` on the session's own disk.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drivers.base import ImageRoot, SandboxSpec
from holdfast.drivers.inside import (
    LABEL_SESSION,
    LABEL_STATE_DIR,
    MASKED,
    READONLY,
    SANDBOX_USER,
    WORKSPACE,
    environment,
    host_name,
    part_of,
)
from holdfast.drivers.linux import cgroups, seccomp
from holdfast.drivers.linux.ids import ID_BASE as ID_BASE
from holdfast.drivers.linux.ids import IdMap
from holdfast.drivers.linux.withheld import OF_THIS_HOST, Withheld
from holdfast.drivers.oci.machine import Machine
from holdfast.drivers.runtime_bundle import LINK_DIR, MOUNT_POINT, RUN_DIR, RuntimeBundle

_NAMESPACES = ("user", "pid", "mount", "network", "ipc", "uts")
_GVISOR_THREADS, _GVISOR_MORE_THREADS = 64, 256
"""The threads that gVisor's kernel needs on the host for each process inside, and for itself; it dies without them."""
_TERMINALS = 256
"""The limit of terminals in a sandbox; a host has 4096 by default."""
_NOT_LAYERED = frozenset({"proc", "sys", "dev", "tmp", "run", "workspace", ".holdfast"})
_SPECIAL = frozenset(',:\\"')
"""The characters that are special in the options of an overlay mount."""

JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class Host:
    """The facts that the driver has found out about this machine."""

    bundle: RuntimeBundle
    machine: Machine
    open_files: int
    architecture: str
    shifts_host: bool = False
    """Whether sandboxes see the host's own files as owned by root; otherwise they see the owner ``nobody``."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Limits of each process on what is counted per user, by their names in the configuration."""
    withheld: Withheld = OF_THIS_HOST

    @property
    def gvisor(self) -> bool:
        """Whether sandboxes have gVisor's kernel. It cannot mount our overlays, and its threads count as processes."""
        return self.machine.gvisor is not None

    def inside_user(self, *, writable_root: bool) -> int:
        """Return the user id inside: root if it owns the files that it may change, otherwise the sandbox's own user."""
        return 0 if writable_root or self.machine.rootless else SANDBOX_USER

    def outside_id(self, inside: int) -> int:
        for first, outside, count in self.machine.uid_map:
            if first <= inside < first + count:
                return outside + inside - first
        return self.machine.uid_map[0][1]


@dataclass(frozen=True, slots=True)
class OciPlaces:
    """The session's own directories on the host."""

    root: Path
    workspace: Path
    tmp: Path
    upper: Path
    work: Path
    resolver: Path | None = None
    """Its ``/etc/resolv.conf``, if it has a network."""


def build(spec: SandboxSpec, host: Host, places: OciPlaces, state_dir: Path, name: str) -> JsonObject:
    """Return the whole configuration. ``name`` is that of the sandbox's cgroups."""
    user = host.inside_user(writable_root=spec.writable_root)
    return {
        "ociVersion": "1.0.2",
        "hostname": host_name(spec.session_id),
        "annotations": {LABEL_SESSION: spec.session_id, LABEL_STATE_DIR: str(state_dir)},
        "process": _process(spec, host, user),
        "root": {"path": str(places.root), "readonly": not spec.writable_root},
        "mounts": [
            *_system_mounts(user, spec.limits.memory_mb, gvisor=host.gvisor),
            *_image_mounts(spec, host, places),
            *_own_mounts(spec, host, places, user),
        ],
        "linux": _linux(spec, host, name),
    }


def _process(spec: SandboxSpec, host: Host, user: int) -> JsonObject:
    nothing: list[str] = []
    variables = environment(spec, host.bundle, user)
    if host.gvisor:  # it lets everybody inside write to what PID 1 has open, and our log has no limit
        variables["HOLDFAST_SILENT"] = "1"
    sets = ("bounding", "effective", "permitted", "inheritable", "ambient")
    return {
        "terminal": False,
        "user": {"uid": user, "gid": user},
        "args": host.bundle.runner_argv(),
        "env": [f"{name}={value}" for name, value in variables.items()],
        "cwd": "/",
        "capabilities": dict.fromkeys(sets, nothing),
        "noNewPrivileges": True,
        "rlimits": _rlimits(spec, host),
    }


def _rlimits(spec: SandboxSpec, host: Host) -> list[JsonObject]:
    limits = [
        {"type": "RLIMIT_NOFILE", "soft": host.open_files, "hard": host.open_files},
        {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
        *({"type": name, "soft": most, "hard": most} for name, most in host.counts.items()),
    ]
    if not host.machine.cgroups or host.gvisor:  # counted per user namespace, so it holds for this sandbox alone
        limits.append({"type": "RLIMIT_NPROC", "soft": spec.limits.pids, "hard": spec.limits.pids})
    return limits


def _mount(destination: str, kind: str, source: str, *options: str) -> JsonObject:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _bind(destination: str, source: Path, *options: str) -> JsonObject:
    return _mount(destination, "bind", str(source), "rbind", "rprivate", "nosuid", "nodev", *options)


def _size(memory_mb: int, divisor: int) -> str:
    return f"size={part_of(memory_mb, divisor) >> 10}k"


def _system_mounts(user: int, memory_mb: int, *, gvisor: bool) -> list[JsonObject]:
    most = () if gvisor else (f"max={_TERMINALS}",)  # gVisor's terminals are not the host's
    safe = ("nosuid", "noexec", "nodev")
    owner = (f"uid={user}", f"gid={user}")
    return [
        _mount("/proc", "proc", "proc", *safe),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", *most),
        _mount("/dev/shm", "tmpfs", "shm", *safe, "mode=1777", _size(memory_mb, 4)),  # noqa: S108 - inside
        _mount("/dev/mqueue", "mqueue", "mqueue", *safe),
        _mount("/sys", "sysfs", "sysfs", *safe, "ro"),
        _mount("/run", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=755", _size(memory_mb, 16), *owner),
    ]


def _own_mounts(spec: SandboxSpec, host: Host, places: OciPlaces, user: int) -> list[JsonObject]:
    private = ("nosuid", "nodev", "mode=700", _size(spec.limits.memory_mb, 8), f"uid={user}", f"gid={user}")
    return [
        _bind(WORKSPACE, places.workspace, "rw"),
        _bind("/tmp", places.tmp, "rw"),  # noqa: S108 - inside the sandbox
        *([] if spec.writable_root else [_bind("/var/tmp", places.tmp, "rw")]),  # noqa: S108
        *([_bind("/etc/resolv.conf", places.resolver, "ro")] if places.resolver else []),
        _bind(MOUNT_POINT, host.bundle.path, "ro"),
        _bind(LINK_DIR, spec.link_dir, "ro", "noexec"),
        _mount(RUN_DIR, "tmpfs", "tmpfs", *private),
    ]


def _image_mounts(spec: SandboxSpec, host: Host, places: OciPlaces) -> list[JsonObject]:
    if spec.writable_root and host.gvisor:
        return []  # the host has mounted them in the root already
    if spec.writable_root:
        return [_overlay(f"/{name}", lower, places, name) for name, lower in layered_directories(spec.image).items()]
    return [_bind(inside, source, "ro") for inside, source in spec.image.binds.items()]


def layered_directories(image: ImageRoot) -> dict[str, Path]:
    """Return the top-level directories of an image that get a layer in a writable root, and where each comes from.

    The root itself is the session's own, so one overlay per directory covers everything, and they are mounted inside
    the sandbox's namespaces: they vanish with it, as root and rootless. A name with characters that an overlay would
    read as a list of directories, or as an option, gets no layer, since a part of the name could be another directory
    of the host. Such a directory is empty inside.
    """
    found = {entry.name: Path(entry.path) for entry in os.scandir(image.layout) if entry.is_dir(follow_symlinks=False)}
    for inside, source in image.binds.items():
        found[inside.strip("/")] = source
    return {name: path for name, path in found.items() if name not in _NOT_LAYERED and not _SPECIAL & set(name)}


def _overlay(destination: str, lower: Path, places: OciPlaces, name: str) -> JsonObject:
    layers = (f"lowerdir={lower}", f"upperdir={places.upper / name}", f"workdir={places.work / name}", "userxattr")
    return _mount(destination, "overlay", "overlay", "nosuid", "nodev", *layers)


def _linux(spec: SandboxSpec, host: Host, name: str) -> JsonObject:
    namespaces = [*_NAMESPACES, *(["cgroup"] if host.machine.cgroup_namespace else [])]
    section: JsonObject = {
        "namespaces": [{"type": name} for name in namespaces],
        "uidMappings": [_id_map(entry) for entry in host.machine.uid_map],
        "gidMappings": [_id_map(entry) for entry in host.machine.gid_map],
        "maskedPaths": [*MASKED, *spec.image.masked],
        "readonlyPaths": list(READONLY),
        "seccomp": seccomp.gvisor_profile(host.architecture) if host.gvisor else seccomp.profile(host.architecture),
    }
    if not host.machine.rootless:  # by name, so that what a runtime leaves behind can be found
        section["cgroupsPath"] = f"/{cgroups.PARENT}/{name}"
    if host.machine.cgroups:
        section["resources"] = _resources(spec, host)
    return section


def _id_map(entry: IdMap) -> JsonObject:
    inside, outside, count = entry
    return {"containerID": inside, "hostID": outside, "size": count}


def _resources(spec: SandboxSpec, host: Host) -> JsonObject:
    memory = spec.limits.memory_mb << 20
    period = 100_000
    pids = spec.limits.pids * _GVISOR_THREADS + _GVISOR_MORE_THREADS if host.gvisor else spec.limits.pids
    return {
        "memory": {"limit": memory, "swap": memory},
        "pids": {"limit": pids},
        "cpu": {"quota": int(spec.limits.cpus * period), "period": period, "shares": int(1024 * spec.limits.cpus)},
        "devices": [{"allow": False, "access": "rwm"}],
    }
