"""Reads what a sandbox uses from its cgroups: the names and formats of the files of v2 and of v1.

``cgroups`` knows where a sandbox's cgroups are. A value that this kernel does not have is None.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.drivers.base import OomCounter, SandboxStats
from holdfast.drivers.linux import cgroups

Read = Callable[[str, str], str | None]
"""``read(controller, file)``: its text, or None where there is no such file."""

_LONGEST_COUNTER_FILE = 4096


def read(directory: Callable[[str], Path]) -> SandboxStats | None:
    """Read the statistics of a sandbox, without the disk; None if it has no cgroup. It blocks for microseconds.

    ``directory`` returns its cgroup for each controller.
    """

    def text(controller: str, name: str) -> str | None:
        try:
            return (directory(controller) / name).read_text()
        except OSError:  # another version's name, an older kernel, or gone
            return None

    if not directory("memory").is_dir():
        return None
    return from_v2(text) if cgroups.unified() else from_v1(text)


def from_v2(text: Read) -> SandboxStats:
    usage = _fields(text("cpu", "cpu.stat")).get("usage_usec")
    inactive = _fields(text("memory", "memory.stat")).get("inactive_file", 0)
    return SandboxStats(
        cpu_seconds=None if usage is None else usage / 1e6,
        memory_bytes=_less(_number(text("memory", "memory.current")), inactive),
        memory_peak_bytes=_number(text("memory", "memory.peak")),
        processes=_number(text("pids", "pids.current")),
        oom_kills=oom_kills(text("memory", "memory.events")),
    )


def from_v1(text: Read) -> SandboxStats:
    usage = _number(text("cpuacct", "cpuacct.usage"))
    inactive = _fields(text("memory", "memory.stat")).get("total_inactive_file", 0)
    return SandboxStats(
        cpu_seconds=None if usage is None else usage / 1e9,
        memory_bytes=_less(_number(text("memory", "memory.usage_in_bytes")), inactive),
        memory_peak_bytes=_number(text("memory", "memory.max_usage_in_bytes")),
        processes=_number(text("pids", "pids.current")),
        oom_kills=oom_kills(text("memory", "memory.oom_control")),
    )


def oom_kills(text: str | None) -> int | None:
    """The count in ``memory.events`` of v2 or ``memory.oom_control`` of v1, which both have a line ``oom_kill N``."""
    return _fields(text).get("oom_kill")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _less(usage: int | None, cache: int) -> int | None:
    """Return the usage without cache; never below zero, because the two are not read at the same moment."""
    return None if usage is None else max(usage - cache, 0)


def _fields(text: str | None) -> Mapping[str, int]:
    """Parse lines of a name and a number; other lines are ignored."""
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


class CgroupOomCounter(OomCounter):
    """Reads the counter from a file that stays open, so that reading it again costs one system call."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._text = b""
        self._last = 0

    @classmethod
    def of(cls, directory: Path) -> "CgroupOomCounter | None":
        name = "memory.events" if cgroups.unified() else "memory.oom_control"
        try:
            return cls(directory / name)
        except OSError:
            return None

    def read(self) -> int:
        try:
            text = os.pread(self._fd, _LONGEST_COUNTER_FILE, 0)
        except OSError:  # the cgroup is gone, and the sandbox with it
            return self._last
        if text != self._text:  # nearly always it is what it was
            self._text = text
            self._last = max(self._last, oom_kills(text.decode()) or 0)
        return self._last

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
