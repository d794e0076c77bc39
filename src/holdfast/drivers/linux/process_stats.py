"""What a tree of processes uses, as /proc tells: for sandboxes without a cgroup of their own.

Memory is what each process has for itself; what processes share is counted for none of them. CPU time is that of the
living and of all that they have waited for.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.base import SandboxStats
from holdfast.drivers.linux.host_processes import descendants_of

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process."""

    cpu_ticks: int
    threads: int
    private_pages: int


def of_tree(root: int) -> SandboxStats:
    """Return the use of a process and all below it. This blocks, for some 50 microseconds per process."""
    found = [use for pid in (root, *_below(root)) if (use := _look(pid)) is not None]
    return SandboxStats(
        cpu_seconds=sum(use.cpu_ticks for use in found) / os.sysconf("SC_CLK_TCK"),
        memory_bytes=sum(use.private_pages for use in found) * os.sysconf("SC_PAGE_SIZE"),
        processes=sum(use.threads for use in found),
    )


def parse(stat: bytes, statm: bytes) -> ProcessUse:
    """Parse the two files of one process; its name, in ``stat``, may itself hold spaces and parentheses."""
    fields = stat.rpartition(b") ")[2].split()
    _size, resident, shared, *_ = map(int, statm.split())
    return ProcessUse(
        cpu_ticks=sum(map(int, fields[11:15])),  # its own, and that of the children it has waited for
        threads=int(fields[17]),
        private_pages=max(resident - shared, 0),
    )


def _look(pid: int) -> ProcessUse | None:
    directory = _PROC / str(pid)
    try:
        return parse((directory / "stat").read_bytes(), (directory / "statm").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def _below(root: int) -> set[int]:
    """Find the processes below one by the kernel's own lists, where it has them. To look at every process of the host,
    once per sandbox, is slow."""
    if not (_PROC / str(root) / "task" / str(root) / "children").exists():
        return descendants_of(root)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        children = set(_children(waiting.pop())) - found
        found |= children
        waiting.extend(children)
    return found


def _children(pid: int) -> Iterator[int]:
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            yield from map(int, (task / "children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):
        return
