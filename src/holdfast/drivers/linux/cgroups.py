"""The cgroups of sandboxes: where they are, and how to remove those that a runtime has left behind.

A runtime that is killed between making a cgroup and saving its state cannot find that cgroup again. We can, because its
name is the sandbox's.
"""

import functools
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PARENT = "holdfast"
ROOT = Path("/sys/fs/cgroup")
_SECONDS = 5.0
_SOCKETS_PART = 4
"""The sockets of a sandbox may hold this fraction (one fourth) of its memory, in addition to it."""


def of(name: str) -> Iterator[Path]:
    """Yield the cgroups of the sandbox of this name that exist: one on v2, one per controller on v1."""
    for base in (ROOT, *_hierarchies()):
        path = base / PARENT / name
        if path.is_dir():
            yield path


def _hierarchies() -> list[Path]:
    with os.scandir(ROOT) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


@functools.cache
def unified() -> bool:
    """Whether this host has only cgroup v2, with one hierarchy for all controllers. This never changes at run time."""
    return (ROOT / "cgroup.controllers").exists()


def directory(name: str, controller: str) -> Path:
    """Return the directory of a sandbox's cgroup for this controller."""
    return (ROOT if unified() else ROOT / controller) / PARENT / name


def of_process(pid: int) -> dict[str, Path]:
    """Return the cgroup directories of a process by controller; by ``""`` on v2. Empty if there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, Path] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if unified() == (controllers == ""):
            names = (name.removeprefix("name=") for name in controllers.split(","))
            found |= {name: ROOT / name / path.lstrip("/") for name in names}
    return found


def within(groups: Mapping[str, Path], controller: str) -> Path:
    """The directory of one controller in a result of ``of_process``; a path that does not exist if there is none."""
    return groups.get(controller) or groups.get("") or Path("/nonexistent")


def limit_socket_buffers(memory: Path) -> None:
    """Bound what sockets hold, where that does not count as memory: with cgroup v1. ``memory`` is that controller's.

    Else what nobody reads on the sandbox's own loopback device is the host's loss, and the kernel has a most for all
    sockets together: at that point nobody on the host is connected any more. Raises OSError.
    """
    limit = memory / "memory.kmem.tcp.limit_in_bytes"
    if limit.exists():
        limit.write_text(str(int((memory / "memory.limit_in_bytes").read_text()) // _SOCKETS_PART))


def remove(name: str) -> None:
    """Kill what is still in a sandbox's cgroups and remove them. Raises OSError if one cannot be removed."""
    remove_each(of(name))


def remove_each(paths: Iterable[Path]) -> None:
    """Kill what is in these cgroups and remove them; it is no error if one is gone already."""
    for path in paths:
        deadline = time.monotonic() + _SECONDS
        while path.is_dir():
            try:
                path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                _kill_all(path)
                time.sleep(0.01)  # the kernel takes a moment to let go of the dead


def _kill_all(path: Path) -> None:
    for pid in (path / "cgroup.procs").read_text().split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
