"""The first process of an OCI sandbox, as its runtime has written it down: finding it, ending it, its last words."""

import contextlib
import os
import signal
import time
from pathlib import Path

from holdfast.drivers.linux import freezer
from holdfast.drivers.linux.host_processes import ProcessId, kill_until_gone, mentioning
from holdfast.errors import DriverError, DriverTransient

_END_SECONDS = 20.0
_END_BYTES = 4096


def pid_file_in(directory: Path) -> Path:
    """Return the file that the runtime writes the process id to. While it starts this sandbox, its command line has
    that path."""
    return directory / "init.pid"


def init_process(directory: Path) -> ProcessId | None:
    """Return the sandbox's first process, if it is still the one that the runtime has written down."""
    try:
        pid_file = pid_file_in(directory)
        pid, written = int(pid_file.read_text()), pid_file.stat().st_mtime
    except (OSError, ValueError):
        return None
    process = ProcessId.of(pid)
    return process if process is not None and process.began() <= written + 1 else None


def kill_init(directory: Path, frozen_as: str | None) -> None:
    """Kill the sandbox's first process, which takes all others of its namespace with it and ends after them.

    Without one, a runtime may still be about to start it: one that a daemon has called and not outlived. A frozen one
    (known to the freezer as ``frozen_as``) dies when it is let go on.
    """
    init = init_process(directory)
    if init is None:
        kill_until_gone(lambda: mentioning(str(pid_file_in(directory))), time.monotonic() + _END_SECONDS)
        return
    init.send(signal.SIGKILL)
    if frozen_as is not None:
        with contextlib.suppress(DriverError):
            freezer.thaw(frozen_as)
    deadline = time.monotonic() + _END_SECONDS
    while init.is_alive():
        if time.monotonic() > deadline:
            raise DriverTransient(f"process {init.pid} was killed but has not ended after {_END_SECONDS:.0f} s")
        time.sleep(0.002)


def last_words(directory: Path) -> str:
    for name in ("runtime.log", "runner.log"):
        with contextlib.suppress(OSError):
            lines = _end_of(directory / name).strip().splitlines()
            if lines:
                return lines[-1][-400:]
    return "no message"


def _end_of(path: Path) -> str:
    """Return what was written last: nobody knows how long a log is."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
        return file.read(_END_BYTES).decode(errors="replace")
