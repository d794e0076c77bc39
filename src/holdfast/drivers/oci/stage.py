"""What a runtime is called with, as root: a bundle in memory, files under the sandbox's own ids, a user namespace.

It lasts as long as the call: a thread with mounts of its own starts the runtime, and the sandbox keeps what it has
taken over. After that, nothing of it is anywhere. Everything here blocks, and raises OSError.
"""

import contextlib
import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.blocking import run_in_new_thread
from holdfast.drivers.linux import mounts, user_namespaces
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT, IdMap, of_disk_files, of_host_files
from holdfast.drivers.oci.id_ranges import USUAL, IdRanges
from holdfast.drivers.oci.views import JsonObject, Views

_MACHINE = Path("/run/holdfast/views")
_USER = "user"
_EMPTY = "empty"
_SYS_RESOURCE = 24
IDMAPPED_LAYERS = (5, 19)
"""The first kernel whose overlays take directories that are shown under other ids."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What this machine can do. ``top``: where views are mounted, an empty directory."""

    top: Path
    shifts_host: bool
    shifts_disks: bool


def find_out(top: Path, home: Path) -> Ability | None:
    """Find out what is possible here, by trying. Returns None where no thread can have mounts of its own."""
    try:
        return run_in_new_thread(lambda: _find_out(top, home))
    except OSError:
        return None


def place(instead: Path) -> Path:
    """Return where views are mounted: a path that everybody may pass through, wherever the daemon keeps its state."""
    with contextlib.suppress(OSError):
        for directory in (_MACHINE.parent, _MACHINE):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o755)  # whatever our umask is
        return _MACHINE
    instead.mkdir(exist_ok=True)
    instead.chmod(0o711)
    return instead


def _find_out(top: Path, home: Path) -> Ability:
    mounts.leave_mount_namespace()
    mounts.mount_memory(top)
    host = _can_show(Path("/usr"), top / "host", of_host_files(ID_BASE))
    disks = _can_show(home, top / "disk", of_disk_files(USUAL.base(0)))
    return Ability(top, host, disks and kernel() >= IDMAPPED_LAYERS)


def _can_show(source: Path, target: Path, ids: Sequence[IdMap]) -> bool:
    target.mkdir()
    try:
        namespace = user_namespaces.make(ids)
        try:
            mounts.mount_view(source, target, namespace)
        finally:
            os.close(namespace)
    except OSError:
        return False
    return True


def kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])


def _may_limit_others() -> bool:
    """Say whether we may set limits of other processes. Root has that right, but not in each container."""
    status = Path("/proc/self/status").read_text()
    rights = re.search(r"^CapEff:\s*(\w+)$", status, re.MULTILINE)
    return rights is not None and bool(int(rights[1], 16) >> _SYS_RESOURCE & 1)


class Stage:
    """For one call. ``own_ids``: whether the sandbox gets a range of ids, and a user namespace made for it alone.

    ``config`` is changed. ``layers``: lower, upper, work and target of each overlay that the host mounts.
    """

    def __init__(
        self,
        home: Path,
        ability: Ability,
        ranges: IdRanges,
        config: JsonObject,
        disks: Sequence[Path],
        layers: Sequence[Sequence[Path]],
        *,
        own_ids: bool,
    ) -> None:
        self.bundle = ability.top
        self._own_ids = own_ids
        self._config = config
        base, self._owner = ID_BASE, 0
        if own_ids:
            number = ranges.claim(home)
            base = ranges.layout.base(number) if ability.shifts_disks else ID_BASE
            self._owner = ranges.layout.owner(number)
        self._views = Views(ability.top, base, disks, ability.shifts_host)
        self._views.translate(config)
        self._layers = [[self._views.place_of(path, lower=True) for path in layer] for layer in layers]
        self.prefix: Sequence[str] = ()
        """What to put in front of the runtime's command."""
        if own_ids:
            self._name_ids(base)
            if not _may_limit_others():
                self.prefix = self._take_limits()

    def _take_limits(self) -> Sequence[str]:
        """Take the limits out of the configuration, and return the command that starts the runtime under them.

        The runtime itself has no right to set them for another user.
        """
        limits = self._config["process"].pop("rlimits", [])
        return "prlimit", *(f"--{each['type'][7:].lower()}={each['soft']}:{each['hard']}" for each in limits)

    def _name_ids(self, base: int) -> None:
        linux = self._config["linux"]
        everything = [{"containerID": 0, "hostID": base, "size": ID_COUNT}]
        linux["uidMappings"] = linux["gidMappings"] = everything
        for namespace in linux["namespaces"]:
            if namespace["type"] == "user":
                namespace["path"] = str(self.bundle / _USER)

    def enter(self) -> None:
        """Enter the stage, in the thread that starts the runtime and does nothing else after that."""
        self._views.mount({"config.json": json.dumps(self._config), _USER: "", _EMPTY: ""})
        for lower, upper, work, target in self._layers:
            mounts.mount_overlay(lower, upper, work, target, user_xattr=True)
        if not self._own_ids:
            self._mask()
        else:
            namespace = user_namespaces.make([(0, self._views.base, ID_COUNT)], self._owner)
            try:
                mounts.bind(Path(f"/proc/self/fd/{namespace}"), self.bundle / _USER)
            finally:
                os.close(namespace)

    def _mask(self) -> None:
        """Mask what is to be masked of the image: gVisor itself masks nothing. Its own ``/proc`` needs none."""
        empty = self.bundle / _EMPTY
        empty.chmod(0o444)
        layered = [(f"/{target.name}", target) for *_sources, target in self._layers]
        shown = [
            (mount["destination"], Path(mount["source"])) for mount in self._config["mounts"] if mount["type"] == "bind"
        ]
        for path in self._config["linux"]["maskedPaths"]:
            for inside, place in layered or shown:
                if path.startswith(f"{inside}/"):
                    mounts.mask(place, path.removeprefix(f"{inside}/"), empty)
