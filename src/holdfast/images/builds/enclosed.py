"""Runs a program where it can do no harm: in user, mount and process namespaces of its own. A script, not a module.

``enclosed.py READY GO PROGRAM …``: makes the namespaces, writes a byte to the descriptor READY, and waits for one on
GO; between the two, ``enclosure`` outside says which ids the namespace has. Then PROGRAM runs as its root. When this
process dies, so does all that PROGRAM has started, and its mounts go.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_LIBC = ctypes.CDLL(None, use_errno=True)


def need(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        sys.exit(f"enclosed: {what}: {os.strerror(number)}")


def die_with_parent() -> None:
    need(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def main() -> int:
    ready, go, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    parent = os.getppid()
    need(_LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWPID), "making a user namespace")
    os.write(ready, b"x")
    if not os.read(go, 1):
        return 1  # whoever wanted it is gone
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    die_with_parent()  # only now: a change of ids would undo it
    if os.getppid() != parent:
        return 1
    child = os.fork()
    if child == 0:
        die_with_parent()
        need(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "making mounts private")
        _LIBC.mount(b"proc", b"/proc", b"proc", 0, None)  # in a container that hides some of it the old one must do
        try:
            os.execvp(program[0], program)  # noqa: S606
        except OSError as error:
            sys.exit(f"enclosed: {program[0]}: {error.strerror}")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256


if __name__ == "__main__":
    sys.exit(main())
