"""How one sandbox's files are shown to its runtime: under the ids that the sandbox has, and to nobody else.

Images and disks belong to one range of ids on disk, the host's own directories to the host. Each sandbox has ids of its
own, so each is shown these files through mounts that translate (Linux 5.12 and later). They are made in a mount
namespace of the one thread that calls the runtime, which takes over what it needs; they are gone with the thread, and
with the daemon if that is killed. On the host nothing of it is ever mounted.

The configuration that ``config`` makes names files where they are on the host. ``translate`` turns it into the one
that the runtime reads. Everything here blocks, and raises OSError.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.drivers.linux import mounts, user_namespaces
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT, of_disk_files, of_host_files
from holdfast.drivers.runtime_bundle import LINK_DIR, MOUNT_POINT

JsonObject = dict[str, Any]

_PLAIN, _DISK, _IMAGE, _HOST = "plain", "disk", "image", "host"
_AS_THEY_ARE = (MOUNT_POINT, LINK_DIR, "/etc/resolv.conf")
"""What is bound from files of the daemon's own, which everybody may read."""
_LAYER_OPTIONS = ("lowerdir", "upperdir", "workdir")


@dataclass(slots=True)
class Views:
    """Which directory is shown where, in a sandbox whose root has the host's id ``base``.

    ``top`` is an empty directory, the same for all sandboxes. ``disks`` are where its own are mounted on the host.
    ``shifts_host``: whether this machine can show the host's own directories under other ids.
    """

    top: Path
    base: int
    disks: Sequence[Path]
    shifts_host: bool
    shown: dict[Path, str] = field(default_factory=dict)
    """What each is: its kind."""

    # -- what is needed ----------------------------------------------------------------------------------------------

    def translate(self, config: JsonObject) -> None:
        """Put each path in the configuration where it will be shown."""
        config["root"]["path"] = str(self.place_of(Path(config["root"]["path"])))
        for mount in config["mounts"]:
            if mount["type"] == "bind":
                source, plain = Path(mount["source"]), mount["destination"] in _AS_THEY_ARE
                mount["source"] = str(self._show(source, _PLAIN) if plain else self.place_of(source))
            elif mount["type"] == "overlay":
                mount["options"] = [self._option(option) for option in mount["options"]]

    def _option(self, option: str) -> str:
        name, _, value = option.partition("=")
        return f"{name}={self.place_of(Path(value), lower=True)}" if name in _LAYER_OPTIONS else option

    def place_of(self, path: Path, *, lower: bool = False) -> Path:
        """Return where the runtime finds the view. ``lower``: an image has several such directories beside each
        other."""
        path = source_of(path).absolute()
        for disk in self.disks:
            if path.is_relative_to(disk):
                return self._show(disk, _DISK) / path.relative_to(disk)
        if not _is_ours(path):
            return self._show(path, _HOST)
        return self._show(path.parent, _IMAGE) / path.name if lower else self._show(path, _IMAGE)

    def _show(self, source: Path, kind: str) -> Path:
        """Return where the runtime finds the directory. What needs no translation stays where it is."""
        if not (self.shifts_host if kind == _HOST else self.base != ID_BASE):
            return source
        self.shown.setdefault(source, kind)
        return self.top / str(list(self.shown).index(source))

    # -- showing it --------------------------------------------------------------------------------------------------

    def mount(self, files: Mapping[str, str]) -> None:
        """Mount the views in a mount namespace of this thread alone, with these files beside them. The thread cannot go
        back."""
        mounts.leave_mount_namespace()
        mounts.mount_memory(self.top)
        for name, text in files.items():
            descriptor = os.open(self.top / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
        with contextlib.ExitStack() as stack:
            namespaces: dict[bool, int] = {}
            for number, (source, kind) in enumerate(self.shown.items()):
                target = self.top / str(number)
                if source.is_dir():
                    target.mkdir()
                else:
                    target.touch()
                host = kind == _HOST
                if kind != _PLAIN and host not in namespaces:
                    namespaces[host] = self._namespace(host)
                    stack.callback(os.close, namespaces[host])
                namespace = None if kind == _PLAIN else namespaces[host]
                mounts.mount_view(source, target, namespace, writable=kind == _DISK)

    def _namespace(self, host: bool) -> int:
        """That shows the host's own files, or those of images and disks, as the sandbox must see them."""
        return user_namespaces.make(of_host_files(self.base) if host else of_disk_files(self.base))


def source_of(path: Path) -> Path:
    """Versions before this one had the host's own directories mounted once for all, and wrote that place down."""
    return Path("/") / path.name if path.parent.name == "shifted" else path


def _is_ours(path: Path) -> bool:
    """Say whether the directory is of an image, and not of the host."""
    return ID_BASE <= path.stat().st_uid < ID_BASE + ID_COUNT
