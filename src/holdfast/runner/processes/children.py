"""Functions on processes: their parents and children as /proc shows them, signals, and the start of a child."""

from __future__ import annotations

import os

from holdfast.runner.lean import signals
from holdfast.runner.loop import Loop

NULL_DEVICE = "/dev/null"
KILL = signals.SIGKILL
HALT_ROUNDS = 10
"""How often to look for children that were started while the others were stopped."""


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process, or of its first thread; empty when it is gone."""
    try:
        return _children_of_thread(pid, str(pid))
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}"):  # a kernel without that file
            return _children_by_scan(pid)
    except ProcessLookupError:
        pass
    return []


def _children_of_thread(pid: int, thread: str) -> list[int]:
    return [int(child) for child in _read_proc(f"/proc/{pid}/task/{thread}/children").split()]


def _children_of_all_threads(pid: int) -> list[int]:
    """Return the children that any thread of a process has started."""
    found = children_of(pid)
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                found += _children_of_thread(pid, thread)
    except (FileNotFoundError, ProcessLookupError):  # it is going away, or the kernel does not tell
        pass
    return found


def _read_proc(path: str) -> bytes:
    """Read a file of /proc without Python's file objects, which make half a dozen more system calls."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = data = os.read(fd, 1 << 16)
        while data:
            data = os.read(fd, 1 << 16)
            content += data
        return content
    finally:
        os.close(fd)


def _children_by_scan(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and parent_of(int(name)) == parent:
            found.append(int(name))
    return found


def parent_of(pid: int) -> int:
    """Return the parent's id, or 0 when the process is gone."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def is_alive(pid: int) -> bool:
    """Say whether a process is alive; False for zombies too, because signals do nothing to them."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def computes(pid: int) -> bool:
    """Say whether a process uses a processor now, or wants to, and does not wait for anything."""
    return _stat_fields(pid)[:1] == [b"R"]


def _stat_fields(pid: int) -> list[bytes]:
    """/proc/PID/stat after the command name, which may itself hold spaces and parentheses."""
    try:
        return _read_proc(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants_of(roots: list[int]) -> set[int]:
    """These processes and everything below them."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(_children_of_all_threads(pid))
    return found


def halted(root: int) -> set[int]:
    """Stop a process and everything below it, so that none of them can start another one, and return them all."""
    found: set[int] = set()
    for _ in range(HALT_ROUNDS):
        new = descendants_of([root]) - found
        if not new:
            break
        for pid in new:
            send_signal(pid, signals.SIGSTOP)
        found |= new
    return found


def send_signal(pid: int, signum: int) -> None:
    """Send a signal to one process; it is no error if that has ended already."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def enter(loop: Loop, sources: list[int]) -> None:
    """Make a forked child a session of its own with these descriptors, from 0 on; only the first three are inherited.

    Signals get the dispositions that programs expect: Python ignores SIGPIPE and SIGXFSZ. When memory runs out, the
    child is killed before the runner.
    """
    loop.forget()
    os.setsid()
    for fd, source in enumerate(sources):
        os.dup2(source, fd, inheritable=fd < 3)
    os.closerange(len(sources), 4096)
    for signum in (signals.SIGPIPE, signals.SIGXFSZ, signals.SIGINT, signals.SIGTERM, signals.SIGCHLD):
        signals.signal(signum, signals.SIG_DFL)
    signals.pthread_sigmask(signals.SIG_SETMASK, ())
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"500")
    except OSError:
        return
