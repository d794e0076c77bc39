"""Freezes and thaws all processes of a sandbox with the cgroup freezer. Everything here blocks."""

import time
from pathlib import Path

from holdfast.drivers.linux import cgroups
from holdfast.errors import DriverTransient, SandboxNotFound

_SECONDS = 10.0
_THAW_SECONDS = 1.0
_V1, _V2 = "freezer.state", "cgroup.freeze"


def available() -> bool:
    """Say whether this host has a freezer that we may use."""
    return cgroups.unified() or (cgroups.ROOT / "freezer").is_dir()


def freeze(name: str) -> None:
    """Freeze a sandbox, and return when every process has stopped. If one does not, all go on, and this raises.

    With cgroup v1 a process that has come in meanwhile, by a fork or from outside, may not be told to stop: then the
    state stays FREEZING until FROZEN is written again, and sometimes until all were let go on in between.
    """
    began = thawed = time.monotonic()
    _write(name, "FROZEN", "1")
    while not is_frozen(name):
        now = time.monotonic()
        if now - began > _SECONDS:
            thaw(name)
            raise DriverTransient(f"{name} has not frozen within {_SECONDS:.0f} s: a process hangs in the kernel")
        if now - thawed > _THAW_SECONDS and not cgroups.unified():
            thaw(name)
            thawed = now
        time.sleep(0.001)
        _write(name, "FROZEN", "1")


def thaw(name: str) -> None:
    _write(name, "THAWED", "0")


def is_frozen(name: str) -> bool:
    directory = cgroups.directory(name, "freezer")
    try:
        if cgroups.unified():
            return "frozen 1" in (directory / "cgroup.events").read_text().splitlines()
        return (directory / _V1).read_text().strip() == "FROZEN"
    except FileNotFoundError:
        return False


def _write(name: str, v1: str, v2: str) -> None:
    directory = cgroups.directory(name, "freezer")
    path, word = (directory / _V2, v2) if cgroups.unified() else (directory / _V1, v1)
    try:
        Path(path).write_text(word)
    except FileNotFoundError:
        raise SandboxNotFound(f"there is no cgroup of {name}: its processes have ended") from None
    except OSError as error:
        raise DriverTransient(f"cannot write {path}: {error.strerror}") from error
