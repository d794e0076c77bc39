"""Stops all writes for a moment, so that a copy is consistent: file systems are frozen, or processes are stopped.

If this process dies meanwhile, a guard process undoes it. Everything here blocks.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.drivers.linux.host_processes import descendants_of, send_signal, state_of
from holdfast.errors import DriverTransient

_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878
_SECONDS = 10.0
_STILL = ("T", "t", "Z", "X", "")
_libc = ctypes.CDLL(None, use_errno=True)

# Reads what to undo until its stdin ends, which is when we end; the last comes first. A shell starts fast.
_GUARD = """trap '' HUP INT TERM
while IFS= read -r line; do set -- "$line" "$@"; done
for line; do
  case $line in
    thaw*) fsfreeze --unfreeze "${line#thaw }" ;;
    continue*) kill -CONT "${line#continue }" ;;
  esac
done
"""


class _Guard:
    """Undoes everything that was noted, if this process dies before ``dismiss``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def note(self, what: str) -> None:
        """Note a step before it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(os.fsencode(what) + b"\n")
        self._process.stdin.flush()

    def dismiss(self) -> None:
        """End the guard, once everything is undone."""
        self._process.kill()  # before its stdin ends: it need not do it once more
        self._process.communicate()


@contextlib.contextmanager
def of_file_systems(mounted: Sequence[Path]) -> Iterator[None]:
    """Write the file systems mounted there out and freeze them; writers have to wait. Raises OSError.

    Together they show the moment when the last one was frozen, because nothing was written to the others since.
    """
    if not mounted:
        yield
        return
    guard = _Guard()
    with contextlib.ExitStack() as undo:
        undo.callback(guard.dismiss)
        for path in mounted:
            sync(path)  # most of it beforehand, while nobody has to wait
        for path in mounted:
            guard.note(f"thaw {path}")
            undo.callback(thaw, path)
            _freeze(path)
        yield


def sync(path: Path) -> None:
    """Write the whole file system of ``path`` out to its device. Raises OSError."""
    with _opened(path) as descriptor:
        if _libc.syncfs(descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))


def _freeze(path: Path) -> None:
    with _opened(path) as descriptor:
        if not _is_its_own(path):
            raise OSError(errno.EINVAL, "nothing is mounted there", str(path))
        try:
            fcntl.ioctl(descriptor, _FIFREEZE, 0)
        except OSError as error:
            if error.errno != errno.EBUSY:  # frozen already, by somebody who has not lived to thaw it
                raise


def thaw(path: Path) -> None:
    """Let writes go on; it is no error if the file system is not frozen, or not there."""
    with contextlib.suppress(OSError), _opened(path) as descriptor:
        if _is_its_own(path):
            fcntl.ioctl(descriptor, _FITHAW, 0)


def _is_its_own(path: Path) -> bool:
    """Say whether it is a file system of its own, and not the host's, which we must not freeze or thaw."""
    return path.stat().st_dev != path.parent.stat().st_dev


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def of_processes(init: int | None) -> Iterator[None]:
    """Stop a process and all below it; for sandboxes with neither a file system of their own nor a freezer.

    Parents are stopped first and continued last, so that no shell sees its children stop. A process that was stopped
    before stays stopped. Raises ``DriverTransient``.
    """
    if init is None:
        yield
        return
    guard = _Guard()
    stopped: list[int] = []
    try:
        deadline = time.monotonic() + _SECONDS
        while running := [pid for pid in _tree(init) if state_of(pid) not in _STILL]:
            if time.monotonic() > deadline:
                raise DriverTransient(f"process {running[0]} has not stopped within {_SECONDS:.0f} s")
            for pid in running:
                if pid not in stopped:
                    guard.note(f"continue {pid}")
                    stopped.append(pid)
                    send_signal(pid, signal.SIGSTOP)
            time.sleep(0.001)
        yield
    finally:
        for pid in reversed(stopped):
            send_signal(pid, signal.SIGCONT)
        guard.dismiss()


def _tree(init: int) -> list[int]:
    """Return a process and all below it, parents before their children if the ids say so."""
    return [init, *sorted(descendants_of(init))]
