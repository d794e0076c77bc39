"""The total resources of this machine: no sandbox can get more than these.

A machine may itself be a container with limits of its own, so the cgroups that sandboxes are charged to count, too:
those above ``/holdfast`` where we may make cgroups, else those that this process is in, with all their parents.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.drivers.linux import cgroups
from holdfast.records.limits import Limits

_MIB = 1 << 20
_PROC = Path("/proc")


def machine_limits(state_dir: Path, *, proc: Path = _PROC, groups: Iterable[Path] | None = None) -> Limits:
    """The machine's total resources. ``pids`` is half of the kernel's limit, so that the host always has some left.

    ``state_dir`` is on the file system that sessions' disks are on; it, or a directory above it, must exist.
    ``groups`` are directories of cgroups, for tests.
    """
    found = list(_groups() if groups is None else groups)
    memory = [_memory(proc), *_numbers(found, "memory.max", "memory.limit_in_bytes")]
    pids = [*_numbers([proc / "sys/kernel"], "pid_max", "threads-max"), *_numbers(found, "pids.max")]
    return Limits(
        cpus=min([float(len(os.sched_getaffinity(0))), *_shares(found)]),
        memory_mb=max(min(memory) // _MIB, 1),
        pids=max(min(pids) // 2, 1),
        disk_mb=max(_disk(state_dir) // _MIB, 1),
    )


def _groups() -> Iterator[Path]:
    if os.geteuid() == 0:
        tops = [cgroups.ROOT] if cgroups.unified() else [cgroups.ROOT / name for name in ("cpu", "memory", "pids")]
        for top in tops:
            yield from (top, top / cgroups.PARENT)
        return
    for place in cgroups.of_process(os.getpid()).values():
        yield place
        yield from (parent for parent in place.parents if parent.is_relative_to(cgroups.ROOT))


def _memory(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) << 10
    raise RuntimeError(f"{proc}/meminfo has no MemTotal")


def _numbers(directories: Iterable[Path], *names: str) -> Iterator[int]:
    """Yield the numbers in these files; a limit that is not set (``max``) and a missing file are left out."""
    for directory in directories:
        for name in names:
            text = _text(directory / name)
            if text.isdigit():
                yield int(text)


def _shares(directories: Iterable[Path]) -> Iterator[float]:
    """Yield how many CPUs each of these cgroups may use at a time."""
    for directory in directories:
        quota, _, period = _text(directory / "cpu.max").partition(" ")  # v2
        if not quota:
            quota, period = _text(directory / "cpu.cfs_quota_us"), _text(directory / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _disk(directory: Path) -> int:
    """Return the size of the file system in bytes, used or not."""
    while not directory.exists():
        directory = directory.parent
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize
