"""The image that Docker starts our containers from: only the names in the root directory, and nothing behind them.

Docker needs an image; ours are directories on this host, which it is shown instead, one mount for each name. So the
image holds an empty directory or file to mount on, and the links (``/bin`` to ``usr/bin``). It is a few kilobytes, the
same for all images with the same names, and its tag is a digest of them. Pure, but for ``survey``.
"""

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.runtime_bundle import MOUNT_POINT

REPOSITORY = "holdfast-skeleton"
SYSTEM = frozenset({"proc", "sys", "dev", "tmp", "run", "workspace", MOUNT_POINT.strip("/")})
"""Names in the root of which the image has only the place; what is there comes from somewhere else."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The names in an image's root, by kind."""

    directories: Mapping[str, int]
    """With their modes."""
    files: frozenset[str]
    links: Mapping[str, str]

    def shown(self) -> list[str]:
        """Return what is mounted from the image."""
        return sorted((set(self.directories) | self.files) - SYSTEM)


def survey(layout: Path) -> Skeleton:
    """Look at an image. Raises OSError."""
    directories: dict[str, int] = dict.fromkeys(SYSTEM, 0o755)
    files: set[str] = set()
    links: dict[str, str] = {}
    with os.scandir(layout) as entries:
        for entry in entries:
            if entry.is_symlink():
                links[entry.name] = str(Path(entry.path).readlink())
            elif entry.is_dir(follow_symlinks=False):
                directories[entry.name] = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
            elif entry.is_file(follow_symlinks=False):
                files.add(entry.name)
    return Skeleton(directories, frozenset(files), links)


def tag(skeleton: Skeleton, machine: str) -> str:
    """Return the image's name in Docker."""
    return f"{REPOSITORY}:{hashlib.sha256(_layer(skeleton) + machine.encode()).hexdigest()[:16]}"


def archive(skeleton: Skeleton, machine: str) -> bytes:
    """Return the image, in the format of ``docker save``."""
    layer = _layer(skeleton)
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": _EPOCH,
        "config": {"Labels": {"dev.holdfast.skeleton": "1"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": _EPOCH, "created_by": "holdfast"}],
    }
    described = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag(skeleton, machine)], "Layers": ["layer.tar"]}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in ((name, described), ("layer.tar", layer), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _layer(skeleton: Skeleton) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, mode in sorted(skeleton.directories.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for name in sorted(skeleton.files):
            tar.addfile(tarfile.TarInfo(name))
        for name, target in sorted(skeleton.links.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()
