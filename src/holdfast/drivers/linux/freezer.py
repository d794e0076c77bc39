"""Freezes and thaws all processes of a sandbox with the cgroup freezer. Everything here blocks."""

import time
from pathlib import Path

from holdfast.drivers.linux import cgroups
from holdfast.errors import DriverTransient, SandboxNotFound

_SECONDS = 10.0
_V1, _V2 = "freezer.state", "cgroup.freeze"


def available() -> bool:
    """Whether this host has a freezer that we may use."""
    return cgroups.unified() or (cgroups.ROOT / "freezer").is_dir()


def freeze(session_id: str) -> None:
    """Freeze a sandbox, and return when every process has stopped. If one does not, all go on, and this raises."""
    _write(session_id, "FROZEN", "1")
    deadline = time.monotonic() + _SECONDS
    while not is_frozen(session_id):
        if time.monotonic() > deadline:
            thaw(session_id)
            raise DriverTransient(f"{session_id} has not frozen within {_SECONDS:.0f} s: a process hangs in the kernel")
        time.sleep(0.001)


def thaw(session_id: str) -> None:
    _write(session_id, "THAWED", "0")


def is_frozen(session_id: str) -> bool:
    directory = cgroups.directory(session_id, "freezer")
    try:
        if cgroups.unified():
            return "frozen 1" in (directory / "cgroup.events").read_text().splitlines()
        return (directory / _V1).read_text().strip() == "FROZEN"
    except FileNotFoundError:
        return False


def _write(session_id: str, v1: str, v2: str) -> None:
    directory = cgroups.directory(session_id, "freezer")
    path, word = (directory / _V2, v2) if cgroups.unified() else (directory / _V1, v1)
    try:
        Path(path).write_text(word)
    except FileNotFoundError:
        raise SandboxNotFound(f"there is no cgroup of {session_id}: its processes have ended") from None
    except OSError as error:
        raise DriverTransient(f"cannot write {path}: {error.strerror}") from error
