"""Who descends from whom, read from /proc; and how a child is started."""

from __future__ import annotations

import os

from holdfast.runner.lean import signals

NULL_DEVICE = "/dev/null"
KILL = signals.SIGKILL
STOP = signals.SIGSTOP
HALT_ROUNDS = 10
"""How often to look for children that were started while the others were stopped."""


def children_of(pid: int) -> list[int]:
    """The direct children of a process, or of its first thread; empty when it is gone."""
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
    """As above, whichever thread started them: a program with several starts others from any."""
    found = children_of(pid)
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                found += _children_of_thread(pid, thread)
    except (FileNotFoundError, ProcessLookupError):  # it is going away, or the kernel does not tell
        pass
    return found


def _read_proc(path: str) -> bytes:
    """Without Python's file objects, which ask the kernel half a dozen things first."""
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
    """The parent's id, or 0 when the process is gone."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def is_alive(pid: int) -> bool:
    """False for zombies too: nobody can signal them any more."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def computes(pid: int) -> bool:
    """Whether it has, or wants, a processor now: it does not wait for anything."""
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
    """A process and everything below it, all stopped, so that none of them starts another one meanwhile."""
    found: set[int] = set()
    for _ in range(HALT_ROUNDS):
        new = descendants_of([root]) - found
        if not new:
            break
        for pid in new:
            send_signal(pid, STOP)
        found |= new
    return found


def send_signal(pid: int, signum: int) -> None:
    """Signal one process; one that has ended already is fine."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def become_expendable() -> None:
    """When memory runs out, what the runner has started goes before the runner itself."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"500")
    except OSError:
        return


def reset_signals() -> None:
    """Give a child the dispositions that programs expect; Python ignores SIGPIPE and SIGXFSZ."""
    for signum in (signals.SIGPIPE, signals.SIGXFSZ, signals.SIGINT, signals.SIGTERM, signals.SIGCHLD):
        signals.signal(signum, signals.SIG_DFL)
    signals.pthread_sigmask(signals.SIG_SETMASK, ())
