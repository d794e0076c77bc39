"""Finds and ends processes of this host by /proc: by their parents, their environment or their command line.

A process is identified by its id, its start time and the boot of the machine, because an id alone is used again sooner
or later.

A process can change what /proc shows of it, and how long that is: a process in a sandbox can show a command line of
terabytes, or one of ours. So a search by command line never looks into sandboxes, and every read has a limit.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ROUND_SECONDS = 0.01
_MOST_WORDS = 128 << 10
"""Bytes of a command line; those of the programs that we start are shorter."""
_MOST_VARIABLES = 8 << 20
"""Bytes of an environment; the kernel starts nothing with more."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The identity of one process: no other process will ever have the same three values."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """Return the identity of the process that has this id now."""
        found = _look(pid)
        return cls(pid, found.started, boot_id()) if found else None

    def is_alive(self) -> bool:
        """Say whether the process still runs; False for a zombie."""
        found = _look(self.pid)
        return found is not None and found.alive and found.started == self.started and self.boot == boot_id()

    def began(self) -> float:
        """Its start as Unix time, exact to one clock tick."""
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time() - up + self.started / os.sysconf("SC_CLK_TCK")

    def send(self, signum: signal.Signals) -> None:
        if self.is_alive():
            send_signal(self.pid, signum)


@dataclass(frozen=True, slots=True)
class _Seen:
    parent: int
    state: str
    started: int

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X")


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def state_of(pid: int) -> str:
    """Return the kernel's letter for its state: R, S, D, T, Z, …; empty if there is no such process."""
    found = _look(pid)
    return found.state if found else ""


def carriers_of(entry: str) -> set[int]:
    """Living processes that were started with ``entry`` (``NAME=value``) in their environment."""
    mark = entry.encode()
    return {pid for pid, seen in _all().items() if seen.alive and mark in _environment(pid)}


def has_variable(pid: int, name: str) -> bool:
    """Say whether a process was started with a variable of this name."""
    return any(entry.startswith(f"{name}=".encode()) for entry in _environment(pid))


def mentioning(argument: str) -> set[int]:
    """Living processes of the host, outside of sandboxes, that have ``argument`` in their command line."""
    word = argument.encode()
    return {pid for pid, words in _command_lines() if word in words}


def mentioned(arguments: Collection[str]) -> set[str]:
    """Return those of ``arguments`` that are in the command line of a living process of the host, found in one pass."""
    wanted = {argument.encode() for argument in arguments}
    found = [wanted.intersection(words) for _, words in _command_lines()] if wanted else []
    return {word.decode() for words in found for word in words}


def _command_lines() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the command line of each living process that is not in a sandbox."""
    own = _depth("self")
    for pid, seen in _all().items():
        with contextlib.suppress(OSError):
            if seen.alive and _depth(str(pid)) <= own:
                yield pid, _read(pid, "cmdline", _MOST_WORDS).split(b"\0")


def _depth(process: str) -> int:
    """In how many pid namespaces a process is, as far as we can see."""
    status = (_PROC / process / "status").read_bytes()
    return len(status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split())


def _read(pid: int, name: str, most: int) -> bytes:
    """Read the beginning of one of a process's files in /proc. Raises OSError."""
    with (_PROC / str(pid) / name).open("rb", buffering=0) as file:
        parts = [file.read(most)]
        while parts[-1] and sum(map(len, parts)) < most:  # the kernel may give less than it has
            parts.append(file.read(most - sum(map(len, parts))))
    return b"".join(parts)


def descendants_of(root: int) -> set[int]:
    """Return all living descendants of a process."""
    everything = _all()
    children: dict[int, list[int]] = {}
    for pid, seen in everything.items():
        children.setdefault(seen.parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return {pid for pid in found if everything[pid].alive}


def kill_until_gone(find: Callable[[], Iterable[int]], deadline: float) -> bool:
    """Kill what ``find`` finds until it finds nothing: what forks while we look is found in the next round.

    ``deadline`` is a time of ``time.monotonic``; False when it has passed.
    """
    while victims := set(find()) - {os.getpid()}:
        if time.monotonic() > deadline:
            return False
        for pid in victims:
            send_signal(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    return True


def send_signal(pid: int, signum: signal.Signals) -> None:
    """Send a signal to one process; one that has ended, or that we may not signal, is ignored."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _all() -> Mapping[int, _Seen]:
    pids = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    return {pid: seen for pid in pids if (seen := _look(pid)) is not None}


def _look(pid: int) -> _Seen | None:
    try:
        # the command's name may itself hold spaces and parentheses
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Seen(parent=int(fields[1]), state=fields[0].decode(), started=int(fields[19]))


def _environment(pid: int) -> list[bytes]:
    try:
        return _read(pid, "environ", _MOST_VARIABLES).split(b"\0")
    except OSError:  # gone, or somebody else's
        return []
