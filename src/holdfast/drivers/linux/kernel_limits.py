"""Limits of the kernel that sandboxes share: those that it has once for all, and those that it counts per user.

Of the first kind each is a number in ``/proc/sys``. If one is too small, one sandbox can use it up; it is large enough
if a sandbox reaches its memory limit first.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.base import Check

_SYS = Path("/proc/sys")
_FILE_BYTES = 256
_REQUEST_BYTES = 32
_TERMINALS = 65_536
_INSTANCES = 128
_MOST = (1 << 63) - 1
_PER_USER = {
    "RLIMIT_SIGPENDING": (resource.RLIMIT_SIGPENDING, 16384),
    "RLIMIT_MSGQUEUE": (resource.RLIMIT_MSGQUEUE, 819_200),
    "RLIMIT_MEMLOCK": (resource.RLIMIT_MEMLOCK, 64 << 20),
}
"""Pending signals, timers included; bytes of POSIX message queues; bytes of locked memory."""
_SHARE = 4


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """One such limit: ``name`` as in sysctl.conf, ``enough`` the smallest good value, ``advice`` the value to set."""

    name: str
    enough: int
    advice: int
    why: str


def settings(memory_bytes: int) -> list[KernelSetting]:
    """Return the limits that matter for a machine with so much memory."""
    return [
        KernelSetting("fs.file-max", memory_bytes // _FILE_BYTES, _MOST, "open files of all sandboxes together"),
        KernelSetting(
            "fs.aio-max-nr", memory_bytes // _REQUEST_BYTES, 1 << 40, "asynchronous requests of all together"
        ),
        KernelSetting("kernel.pty.max", _TERMINALS, 1 << 20, "terminals of all together, of which each has 256"),
        KernelSetting("fs.inotify.max_user_instances", _INSTANCES, 1024, "watchers of files in each sandbox"),
    ]


def check(sys: Path = _SYS) -> Check:
    """Check all limits, for one line of ``holdfast doctor``. It never raises."""
    name = "kernel limits"
    short = [setting for setting in settings(_memory_bytes()) if (_value(sys, setting.name) or _MOST) < setting.enough]
    if not short:
        return Check(name, True, "what sandboxes share is more than one can take")
    detail = "; ".join(f"{setting.name} is {_value(sys, setting.name)} ({setting.why})" for setting in short)
    lines = ", ".join(f"{setting.name} = {setting.advice}" for setting in short)
    remedy = (
        f"Else one sandbox can take all of it. Put into /etc/sysctl.d/90-holdfast.conf: {lines}; then sysctl --system"
    )
    return Check(name, False, detail, remedy, fatal=False)


def _value(sys: Path, name: str) -> int | None:
    try:
        return int((sys / name.replace(".", "/")).read_text())
    except (OSError, ValueError):
        return None


def _memory_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")), 0)


def process_limits(*, shared: bool) -> Mapping[str, int]:
    """Return the limits by their names in an OCI configuration; never more than the daemon's own.

    ``shared`` means that all sandboxes run as one user and share its resources, so that each gets only a part.
    """
    found = {}
    for name, (number, most) in _PER_USER.items():
        own = resource.getrlimit(number)[1]
        if own != resource.RLIM_INFINITY:
            most = min(most, own // _SHARE if shared else own)
        found[name] = most
    return found
