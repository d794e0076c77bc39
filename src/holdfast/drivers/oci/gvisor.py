"""gVisor's runtime, ``runsc``: how it is called, and what its builds can do. Root only."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.commands import run
from holdfast.errors import HoldfastError

_SECONDS = 20.0
_FIRST_GOOD_BUILD = 2023
"""Before it, ``stat`` with the flags of coreutils 9 is refused."""


@dataclass(frozen=True, slots=True)
class Gvisor:
    """One build of it."""

    version: str
    options: Sequence[str]
    """For every command, in front of it."""
    checkpoint_options: Sequence[str] = ()

    @property
    def refuses_ls(self) -> bool:
        year = re.search(r"\b(20\d\d)\d{4}\b", self.version)
        return year is not None and int(year[1]) < _FIRST_GOOD_BUILD


async def gvisor_at(path: str) -> Gvisor | None:
    """Return what the runtime at this path is; None if it is another one. This never raises."""
    try:
        version = (await run(path, "--version", timeout=_SECONDS)).stdout.partition("\n")[0]
        if not version.startswith("runsc version"):
            return None
        flags = await run(path, "flags", timeout=_SECONDS)
        saving = await run(path, "help", "checkpoint", timeout=_SECONDS)
    except HoldfastError:
        return None
    return describe(version.removeprefix("runsc version").strip(), flags.stdout + flags.stderr, saving.stdout)


def describe(version: str, flags: str, checkpoint_flags: str) -> Gvisor:
    """Describe the runtime from what it says about itself. This is pure."""
    # The runner dials a socket of the host; all other ways to the host's sockets and pipes stay shut.
    sockets = "--host-uds=open" if _offers(flags, "host-uds") else "--fsgofer-host-uds"
    # Writes belong on the session's own disk, and not into a layer that is the sandbox's memory or image.
    layers = ["--overlay2=none"] if _offers(flags, "overlay2") else []
    options = (sockets, *layers, "--network=none", "--oci-seccomp")
    uncompressed = ("--compression=none",) if _offers(checkpoint_flags, "compression") else ()
    return Gvisor(version, options, uncompressed)


def _offers(flags: str, name: str) -> bool:
    return re.search(rf"^\s+-{name}\b", flags, re.MULTILINE) is not None


def forget(root: Path, name: str) -> bool:
    """Remove what runsc has written down about a container whose last process has ended. Blocks. Raises OSError.

    Its own ``delete`` would wait until the host's init has taken note of these ends, which some take a second for.
    False if nothing was found: then only runsc can tell whether it knows the container.
    """
    own = re.compile(rf"(runsc-)?{re.escape(name)}[_.].*")
    with os.scandir(root) as entries:
        found = [entry.path for entry in entries if own.fullmatch(entry.name)]
    for path in found:
        Path(path).unlink(missing_ok=True)
    return bool(found)


def gvisor_checks(gvisor: Gvisor | None, rootless: bool) -> list[Check]:
    """Return the lines of ``holdfast doctor`` about gVisor."""
    if gvisor is None:
        detail = "hibernation keeps files and shells; with `runtime: runsc` (gVisor) it keeps memory too"
        return [Check("checkpoints", True, detail)]
    if rootless:
        remedy = "Run the daemon as root, or set runtime to runc or crun"
        return [Check("gVisor", False, "runsc needs root to make sandboxes of ours", remedy)]
    checks = [Check("checkpoints", True, "hibernation keeps memory: processes go on where they stood")]
    if gvisor.refuses_ls:
        detail = f"{gvisor.version} is a build in which `ls` and `stat` of coreutils 9 fail"
        checks.append(Check("gVisor", False, detail, "Install a build of 2023 or later, if you can", fatal=False))
    return checks
