"""Makes the request for a Docker container from a sandbox's spec. Pure: it looks at nothing but its arguments.

It is the sandbox of ``oci/config``, as far as Docker allows: the same user, mounts, masked paths, seccomp list and
limits, no capability, no new privileges, and only a loopback device. What Docker alone decides is the user namespace:
there is one if its daemon runs with ``userns-remap``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.docker import skeleton as docker_skeleton
from holdfast.drivers.docker.skeleton import Skeleton
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
from holdfast.drivers.linux import seccomp
from holdfast.drivers.linux.withheld import OF_THIS_HOST, Withheld
from holdfast.drivers.runtime_bundle import LINK_DIR, MOUNT_POINT, RUN_DIR, RuntimeBundle

JsonObject = dict[str, object]

_LOG = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}
_TMPFS = "rw,nosuid,nodev"


@dataclass(frozen=True, slots=True)
class DockerHost:
    """The facts that the driver has found out about this machine and its Docker."""

    bundle: RuntimeBundle
    owner: int
    """Our own user id on this host; root (0) can do more than others."""
    id_base: int
    """The host's id of the sandboxes' root: 0 unless Docker remaps ids."""
    open_files: int
    machine: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """Limits of each process on what is counted per user, by their names in an OCI configuration."""
    withheld: Withheld = OF_THIS_HOST

    @property
    def privileged(self) -> bool:
        return self.owner == 0

    def inside_user(self, *, writable_root: bool) -> int:
        """Return the user id inside: it must own the files that the sandbox may change."""
        if not self.privileged:
            return self.owner
        return 0 if writable_root else SANDBOX_USER


@dataclass(frozen=True, slots=True)
class DockerPlaces:
    """The session's own directories on the host, and where each name in its root comes from."""

    workspace: Path
    tmp: Path
    image: Mapping[str, Path]
    guarded: bool
    """Whether the image's directories are mounted read-only, or as layers, already."""
    masked: tuple[str, ...] = ()
    """Paths of the host's own directories that no user inside may see."""
    resolver: Path | None = None
    """Its ``/etc/resolv.conf``, if it has a network."""


def build(spec: SandboxSpec, host: DockerHost, places: DockerPlaces, skeleton: Skeleton, state_dir: Path) -> JsonObject:
    """Return the body of ``POST /containers/create``."""
    user = host.inside_user(writable_root=spec.writable_root)
    variables = environment(spec, host.bundle, user)
    return {
        "Image": docker_skeleton.tag(skeleton, host.machine),
        "Hostname": host_name(spec.session_id),
        "User": f"{user}:{user}",
        "WorkingDir": "/",
        "Entrypoint": [],
        "StopSignal": "SIGKILL",  # the runner takes no other, so that nothing inside can end it
        "Cmd": host.bundle.runner_argv(),
        # A name without a value takes away what Docker would add.
        "Env": [*(f"{name}={value}" for name, value in variables.items()), "HOSTNAME"],
        "Labels": {LABEL_SESSION: spec.session_id, LABEL_STATE_DIR: str(state_dir)},
        # Without it Docker shows the host's name servers inside. The network namespace is empty all the same.
        "NetworkDisabled": True,
        "HostConfig": _host_config(spec, host, places, user),
    }


def _host_config(spec: SandboxSpec, host: DockerHost, places: DockerPlaces, user: int) -> JsonObject:
    memory = spec.limits.memory_mb << 20
    return {
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": _LOG,
        "CapDrop": ["ALL"],
        "Privileged": False,
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={json.dumps(seccomp.docker_profile(host.machine))}"],
        "MaskedPaths": [*MASKED, *spec.image.masked, *places.masked],
        "ReadonlyPaths": list(READONLY),
        # A writable root is its directories: what is right in it (new names) or Docker's own (/etc/hostname) is on the
        # host's disk, where no limit holds.
        "ReadonlyRootfs": True,
        "Mounts": _mounts(spec, host, places),
        "Tmpfs": _tmpfs(spec.limits.memory_mb, user),
        "ShmSize": part_of(spec.limits.memory_mb, 4),
        "Memory": memory,
        "MemorySwap": memory,  # memory and swap together: none of it is swap
        "NanoCpus": int(spec.limits.cpus * 1e9),
        "PidsLimit": spec.limits.pids,
        "Ulimits": [
            {"Name": "nofile", "Soft": host.open_files, "Hard": host.open_files},
            {"Name": "core", "Soft": 0, "Hard": 0},
            *(_ulimit(name, most) for name, most in host.counts.items()),
        ],
    }


def _ulimit(name: str, most: int) -> JsonObject:
    return {"Name": name.removeprefix("RLIMIT_").lower(), "Soft": most, "Hard": most}


def _tmpfs(memory_mb: int, user: int) -> dict[str, str]:
    owner = f"uid={user},gid={user}"
    return {
        "/run": f"{_TMPFS},exec,mode=755,size={part_of(memory_mb, 16)},{owner}",
        RUN_DIR: f"{_TMPFS},exec,mode=700,size={part_of(memory_mb, 8)},{owner}",
    }


def _mounts(spec: SandboxSpec, host: DockerHost, places: DockerPlaces) -> list[JsonObject]:
    # To make a mount read-only the runtime sets all its flags anew, and set-id bits would have an effect again.
    image = [_bind(f"/{name}", source, not places.guarded) for name, source in places.image.items()]
    own = [
        _bind(WORKSPACE, places.workspace, False),
        _bind("/tmp", places.tmp, False),  # noqa: S108 - inside the sandbox
        *([] if spec.writable_root else [_bind("/var/tmp", places.tmp, False)]),  # noqa: S108
        *([_bind("/etc/resolv.conf", places.resolver, True)] if places.resolver else []),
        _bind(MOUNT_POINT, host.bundle.path, True),
        _bind(LINK_DIR, spec.link_dir, True),
    ]
    return [*image, *own]


def _bind(destination: str, source: Path, read_only: bool) -> JsonObject:
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": destination,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }
