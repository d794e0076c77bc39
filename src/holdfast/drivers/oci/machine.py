"""What this machine offers to the oci driver: which runtime, as whom, with which limits; one check for each."""

import getpass
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.commands import run
from holdfast.drivers.linux import kernel_limits, slirp
from holdfast.drivers.linux.cgroups import unified
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT, IdMap
from holdfast.drivers.oci import stage
from holdfast.drivers.oci.gvisor import Gvisor, gvisor_at, gvisor_checks
from holdfast.errors import HoldfastError

RUNTIMES = ("crun", "runc")
_SECONDS = 20.0
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """The findings."""

    runtime: str
    gvisor: Gvisor | None
    rootless: bool
    uid_map: Sequence[IdMap]
    gid_map: Sequence[IdMap]
    cgroups: bool
    cgroup_namespace: bool
    loop_disks: bool
    full_network: Check
    checks: Sequence[Check] = field(default_factory=list)


async def examine(wanted: str | None) -> Machine:
    """Look at everything; never raises, changes nothing."""
    rootless = os.geteuid() != 0
    runtime, runtime_check = await _find_runtime(wanted)
    uid_map, gid_map, ids_check = id_maps(rootless)
    cgroups, cgroups_check = _cgroups(rootless)
    loop, loop_check = loop_disks(rootless)
    gvisor = await gvisor_at(runtime) if runtime_check.ok else None
    network_check = _full_network(runtime, rootless, gvisor)
    return Machine(
        runtime=runtime,
        gvisor=gvisor,
        rootless=rootless,
        uid_map=uid_map,
        gid_map=gid_map,
        cgroups=cgroups,
        cgroup_namespace=Path("/proc/self/ns/cgroup").exists(),
        loop_disks=loop,
        full_network=network_check,
        checks=[
            runtime_check,
            await _user_namespaces(),
            ids_check,
            cgroups_check,
            loop_check,
            _overlay(),
            _tools(),
            network_check,
            *([] if gvisor else [_counts(rootless), kernel_limits.check()]),
            *gvisor_checks(gvisor, rootless),
        ],
    )


async def _find_runtime(wanted: str | None) -> tuple[str, Check]:
    """Return the first runtime that can work here, or the one asked for."""
    problems = []
    for name in [wanted] if wanted else RUNTIMES:
        path = shutil.which(name)
        if path is None:
            problems.append(f"{name} is not installed")
            continue
        problem = await _runtime_problem(path)
        if problem is None:
            return path, Check("runtime", True, f"{path}")
        problems.append(f"{name}: {problem}")
    if wanted:
        remedy = f"Install {wanted}, or leave runtime unset to take the first that works"
    else:
        remedy = "Install one: apt-get install runc" + (" (as root)" if os.geteuid() else "")
    return wanted or RUNTIMES[-1], Check("runtime", False, "; ".join(problems), remedy)


async def _runtime_problem(path: str) -> str | None:
    """Say why this runtime cannot work here, by asking it: it lists containers in an empty place."""
    try:
        done = await run(path, "--version", timeout=_SECONDS)
    except HoldfastError as error:
        return str(error)
    if not done.ok:
        return done.complaint()
    if Path(path).name.startswith("crun") and _hybrid_cgroups():
        return "this host mounts cgroups in hybrid mode, which crun refuses"
    return None


def _hybrid_cgroups() -> bool:
    return (_CGROUP / "unified" / "cgroup.procs").exists() and (_CGROUP / "memory").is_dir()


async def _user_namespaces() -> Check:
    try:
        done = await run("unshare", "--user", "true", timeout=_SECONDS)
    except HoldfastError as error:
        return Check("user namespaces", False, str(error), "Install it: apt-get install util-linux")
    if done.ok:
        return Check("user namespaces", True, "can be made")
    remedy = "Allow them: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536"
    return Check("user namespaces", False, done.complaint(), remedy)


def id_maps(rootless: bool) -> tuple[Sequence[IdMap], Sequence[IdMap], Check]:
    """Return which ids of the host the users and groups of a sandbox are, and whether there are enough of them."""
    if not rootless:
        shifted = [(0, ID_BASE, ID_COUNT)]
        return shifted, shifted, Check("user ids", True, f"sandboxes use host ids from {ID_BASE}")
    user, group = [(0, os.geteuid(), 1)], [(0, os.getegid(), 1)]
    uids, gids = _subordinate("/etc/subuid"), _subordinate("/etc/subgid")
    if uids and gids and shutil.which("newuidmap") and shutil.which("newgidmap"):
        detail = "the sandbox's root is you, its other users come from your subordinate ids"
        return [*user, (1, *uids)], [*group, (1, *gids)], Check("user ids", True, detail)
    detail = "only one id: the sandbox's root is you, and it has no other users"
    remedy = (
        f"For more: apt-get install uidmap; usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {_me()}"
    )
    return user, group, Check("user ids", False, detail, remedy, fatal=False)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


def _subordinate(path: str) -> tuple[int, int] | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        owner, first, count = [*line.split(":"), "", "", ""][:3]
        if owner in (_me(), str(os.geteuid())) and first.isdigit() and count.isdigit():
            return int(first), min(int(count), ID_COUNT - 1)
    return None


def _cgroups(rootless: bool) -> tuple[bool, Check]:
    if rootless:
        detail = "memory and cpu limits are not enforced for an ordinary user; the number of processes is"
        return False, Check("cgroups", False, detail, "Run the daemon as root to enforce them", fatal=False)
    version = "v2" if unified() else "v1"
    present = [name for name in ("memory", "pids", "cpu") if _has_controller(name)]
    missing = [name for name in ("memory", "pids", "cpu") if name not in present]
    if missing:
        detail = f"{version}, without {', '.join(missing)}: those limits cannot be enforced"
        return False, Check("cgroups", False, detail, "Mount the controllers below /sys/fs/cgroup", fatal=False)
    if not os.access(_CGROUP, os.W_OK):
        return False, Check("cgroups", False, "/sys/fs/cgroup is read-only", "Remount it writable", fatal=False)
    return True, Check("cgroups", True, f"{version}, with memory, pids and cpu")


def _has_controller(name: str) -> bool:
    if (_CGROUP / name).is_dir():
        return True
    try:
        return name in (_CGROUP / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def loop_disks(rootless: bool) -> tuple[bool, Check]:
    name = "disk limits"
    if rootless:
        detail = "not enforced for an ordinary user"
        return False, Check(name, False, detail, "Run the daemon as root to enforce them", fatal=False)
    if not Path("/dev/loop-control").exists():
        return False, Check(name, False, "no loop devices", "Load them: modprobe loop", fatal=False)
    if shutil.which("mkfs.ext4") is None:
        return False, Check(name, False, "mkfs.ext4 is missing", "apt-get install e2fsprogs", fatal=False)
    return True, Check(name, True, "each session has a file system of its own")


def _counts(rootless: bool) -> Check:
    """Return what the kernel counts per user."""
    name = "ids of sandboxes"
    if rootless:
        detail = "all sandboxes are you, and share with you what the kernel counts per user: watches, pipes, queues"
        return Check(name, False, detail, "Run the daemon as root to give each its own", fatal=False)
    if stage.kernel() < stage.IDMAPPED_LAYERS:
        detail = "all sandboxes have the same ids, and share pipes and epoll watches"
        return Check(name, False, detail, "For ids of their own: Linux 5.19 or later", fatal=False)
    return Check(name, True, "each sandbox has its own")


def _overlay() -> Check:
    try:
        known = "overlay" in Path("/proc/filesystems").read_text().split()
    except OSError:
        known = False
    if known:
        return Check("overlay", True, "writable roots are possible")
    return Check("overlay", False, "writable_root will not work", "Load it: modprobe overlay", fatal=False)


def _tools() -> Check:
    missing = [name for name in ("mount", "umount", "unshare", "ldd") if shutil.which(name) is None]
    if missing:
        return Check("tools", False, f"missing: {', '.join(missing)}", "apt-get install mount util-linux libc-bin")
    return Check("tools", True, "mount, unshare, ldd")


def _full_network(runtime: str, rootless: bool, gvisor: Gvisor | None) -> Check:
    if gvisor is not None:
        remedy = "For network full: set runtime to runc or crun"
        return Check(slirp.CHECK, False, "gVisor's sandboxes have no network but the broker", remedy, fatal=False)
    if rootless and Path(runtime).name.startswith("crun"):
        detail = "an ordinary user cannot reach into the namespaces of what crun has not started yet"
        return Check(slirp.CHECK, False, detail, "For network full: set runtime to runc, or run as root", fatal=False)
    return slirp.check()
