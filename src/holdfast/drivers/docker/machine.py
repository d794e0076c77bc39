"""What this machine and its Docker daemon offer to the docker driver; one check for each."""

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.docker.client import INSTALL, DockerClient, JsonObject
from holdfast.drivers.linux import kernel_limits, slirp
from holdfast.drivers.oci.machine import loop_disks
from holdfast.errors import HoldfastError

_OLDEST = (20, 10)
_CONFIG = "/etc/docker/daemon.json"
_LIMITS = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpu": "CpuCfsQuota"}
_REMAPPED_ROOT = re.compile(r"/(\d+)\.(\d+)$")


@dataclass(frozen=True, slots=True)
class DockerMachine:
    """The findings."""

    checks: Sequence[Check]
    id_base: int = 0
    limits: frozenset[str] = frozenset()
    loop_disks: bool = False
    full_network: Check = field(default_factory=lambda: Check(slirp.CHECK, False, "there is no Docker", fatal=False))


async def examine(client: DockerClient) -> DockerMachine:
    """Look at everything; never raises, changes nothing."""
    package = _package()
    place = _place(client.host)
    if not (package.ok and place.ok):
        return DockerMachine([package, place])
    try:
        info = await client.info()
    except HoldfastError as error:
        remedy = "Start Docker, set docker_host to its socket, and join the group that may use it"
        return DockerMachine([package, Check("docker", False, error.message, remedy)])
    return judge(info, package, privileged=os.geteuid() == 0)


def judge(info: JsonObject, package: Check, *, privileged: bool) -> DockerMachine:
    """Return what Docker says about itself, as findings."""
    options = _texts(info.get("SecurityOptions"))
    limits = frozenset(name for name, key in _LIMITS.items() if info.get(key))
    disks, disk_check = loop_disks(not privileged)
    network = slirp.check() if privileged else _no_network()
    remapped = "name=userns" in options
    return DockerMachine(
        checks=[
            package,
            _version(info),
            _kind(info, options),
            _seccomp(options),
            _user_namespace(info, remapped, privileged),
            _cgroups(info, limits),
            disk_check,
            _live_restore(info),
            network,
            kernel_limits.check(),
        ],
        id_base=_id_base(info) if remapped else 0,
        limits=limits,
        loop_disks=disks,
        full_network=network,
    )


def _package() -> Check:
    if importlib.util.find_spec("aiodocker") is None:
        return Check("aiodocker", False, "is not installed", f"Install it: {INSTALL}")
    return Check("aiodocker", True, "is installed")


def _place(host: str) -> Check:
    if host.startswith("unix:///"):
        return Check("docker", True, host)
    remedy = "Set docker_host to the socket of a Docker daemon on this machine, such as unix:///var/run/docker.sock"
    return Check("docker", False, f"{host} is elsewhere: sandboxes reach us by a socket on this machine", remedy)


def _version(info: JsonObject) -> Check:
    version = str(info.get("ServerVersion", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    detail = f"{version}, storage {info.get('Driver', 'unknown')}"
    return Check("docker", numbers >= _OLDEST, detail, "Install Docker 20.10 or later: apt-get install docker.io")


def _kind(info: JsonObject, options: Sequence[str]) -> Check:
    if info.get("OSType") != "linux":
        return Check("docker kind", False, f"containers of {info.get('OSType')}", "Use Docker on Linux")
    if "name=rootless" in options:
        remedy = "Use driver oci, which works without root by itself, or a Docker that runs as root"
        return Check("docker kind", False, "a rootless Docker gives files to users that we cannot know", remedy)
    return Check("docker kind", True, "Linux, run by root")


def _seccomp(options: Sequence[str]) -> Check:
    if any(option.startswith("name=seccomp") for option in options):
        return Check("seccomp", True, "system calls are filtered")
    return Check("seccomp", False, "this Docker cannot filter system calls", "Use a kernel and a Docker with seccomp")


def _user_namespace(info: JsonObject, remapped: bool, privileged: bool) -> Check:
    name = "user namespace"
    if not remapped:
        detail = "none: ids inside are the host's ids, also root's where a session has a writable root"
        return Check(name, False, detail, f'Set "userns-remap": "default" in {_CONFIG}', fatal=False)
    if not privileged:
        return Check(name, False, "Docker remaps ids, and only root can give files to them", "Run the daemon as root")
    if _id_base(info) == 0:
        return Check(name, False, f"cannot tell the ids from {info.get('DockerRootDir')}", "Use driver oci")
    return Check(name, True, f"sandboxes use host ids from {_id_base(info)}")


def _id_base(info: JsonObject) -> int:
    """Find the first id of Docker's mapping: Docker keeps the files of each in a directory that is named after it."""
    match = _REMAPPED_ROOT.search(str(info.get("DockerRootDir", "")))
    return int(match[1]) if match and match[1] == match[2] else 0


def _cgroups(info: JsonObject, limits: frozenset[str]) -> Check:
    version = f"v{info.get('CgroupVersion', '1')}"
    missing = [name for name in _LIMITS if name not in limits]
    if missing:
        detail = f"{version}, without {', '.join(missing)}: those limits cannot be enforced"
        return Check("cgroups", False, detail, f"Mount the controllers below {Path('/sys/fs/cgroup')}", fatal=False)
    return Check("cgroups", True, f"{version}, with memory, pids and cpu")


def _live_restore(info: JsonObject) -> Check:
    if info.get("LiveRestoreEnabled"):
        return Check("live restore", True, "sandboxes outlive the Docker daemon")
    detail = "off: a restart of the Docker daemon ends all sandboxes"
    return Check("live restore", False, detail, f'Set "live-restore": true in {_CONFIG}', fatal=False)


def _no_network() -> Check:
    return Check(
        slirp.CHECK, False, "not for an ordinary user", "For network full: run the daemon as root", fatal=False
    )


def _texts(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
