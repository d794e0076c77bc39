"""What processes take of the machine's memory."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_PSS = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)
_RSS = re.compile(rb"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_PEAK_RSS = re.compile(rb"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_RESET_PEAK = "5"
"""What proc(5) wants in ``clear_refs`` for that."""

PROC = Path("/proc")


def pss_mb(pid: int) -> float:
    """A process's own pages, and its share of those that others have mapped too."""
    found = _PSS.search((PROC / str(pid) / "smaps_rollup").read_bytes())
    return int(found[1]) / 1024 if found else 0.0


def rss_mb(pid: int) -> float:
    found = _RSS.search((PROC / str(pid) / "status").read_bytes())
    return int(found[1]) / 1024 if found else 0.0


def forget_peak_rss(pid: int) -> None:
    """Let ``peak_rss_mb`` count from now on. The kernel keeps the peak itself, so no spike falls between two looks."""
    (PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK)


def peak_rss_mb(pid: int) -> float:
    found = _PEAK_RSS.search((PROC / str(pid) / "status").read_bytes())
    return int(found[1]) / 1024 if found else 0.0


def pid_namespace(pid: int) -> str:
    return str((PROC / str(pid) / "ns" / "pid").readlink())


def pss_mb_by_pid_namespace() -> dict[str, float]:
    """The sum over all processes of each pid namespace: a session has one of its own, and cannot leave it."""
    total: dict[str, float] = defaultdict(float)
    for pid in _processes():
        try:
            namespace = pid_namespace(pid)
            total[namespace] += pss_mb(pid)
        except OSError:
            continue  # it has ended meanwhile
    return total


def _processes() -> Iterator[int]:
    for directory in PROC.iterdir():
        if directory.name.isdigit():
            yield int(directory.name)
