"""The ``host`` image: the host's own system directories, read-only, with an /etc made for the sandbox.

It costs no disk and no import: ``/usr`` is shown as it is, and only a small directory around it is generated. Nothing
of the host's homes, of its service configuration or of its variable data is in it. ``plan`` says what the image
is, with a fingerprint of everything that went into it; ``build`` writes it.
"""

import hashlib
import os
import posixpath
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.images import layout
from holdfast.images.host import packages as host_packages
from holdfast.images.host.etc import MAX_FILE, Survey, generated, readable_by_all, survey
from holdfast.images.host.packages import Packages
from holdfast.images.unpack.tree import Meta, Tree, split

_VERSION = 2  # goes into the fingerprint: raise it when ``build`` or ``generated`` changes
_SYSTEM = re.compile(r"bin|sbin|lib\w*")
_EMPTY = ("usr", "opt", "srv", "media", "var/lib", "var/cache", "var/log")
_LINKS = {"var/run": "/run", "var/lock": "/run/lock", "etc/mtab": "/proc/self/mounts"}
# Where system directories hold configuration and data of services.
_MASKED = ("/usr/etc", "/usr/home", "/usr/local/etc", "/usr/local/home", "/usr/local/var", "/usr/var")


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What the image is to be. The same fingerprint means the same image."""

    links: Mapping[str, str]
    mount_points: tuple[str, ...]
    etc: Survey
    texts: Mapping[str, bytes]
    packages: Packages
    binds: Mapping[str, Path]
    masked: tuple[str, ...]
    fingerprint: str


def plan(host: Path, *, id_base: int | None) -> HostPlan:
    """Look at the host below ``host`` (``/``, but for tests)."""
    links: dict[str, str] = {}
    binds = {"/usr": host / "usr"}
    for path in sorted(host.iterdir()):
        name = path.name
        if not _SYSTEM.fullmatch(name) or not path.is_dir():
            continue
        if not path.is_symlink():
            binds[f"/{name}"] = path  # a host without merged /usr
        elif re.match(r"/(usr|bin|sbin|lib\w*)(/|$)", posixpath.normpath(posixpath.join("/", path.readlink()))):
            links[name] = str(path.readlink())
    etc = survey(host / "etc")
    bash = (host / "usr/bin/bash").exists() or (host / "bin/bash").exists()
    texts = generated("/bin/bash" if bash else "/bin/sh")
    masked = tuple(path for path in _MASKED if (host / path[1:]).is_dir() and not (host / path[1:]).is_symlink())
    packages = host_packages.survey(host)
    apt = (packages.state, packages.texts, packages.programs)
    state = (_VERSION, id_base, links, sorted(binds.items()), masked, etc.links, etc.copies, texts, apt)
    fingerprint = hashlib.sha256(repr(state).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return HostPlan(links, tuple(path[1:] for path in binds), etc, texts, packages, binds, masked, fingerprint)


def build(wanted: HostPlan, place: Path, *, id_base: int | None) -> int:
    """Make ``place/rootfs``; returns its size in bytes."""
    rootfs = place / "rootfs"
    rootfs.mkdir(0o700)
    now = time.time()
    with Tree(rootfs, id_base=id_base) as tree:
        for path in (*_EMPTY, *wanted.mount_points):
            tree.directory(split(path), Meta(0o755, mtime=now))
        for path, target in (*wanted.links.items(), *_LINKS.items()):
            tree.symlink(split(path), Meta(0o777, mtime=now), target)
        for path, target in wanted.etc.links.items():
            tree.symlink(split(f"etc/{path}"), Meta(0o777, mtime=now), target)
        for path, (source, _, _) in wanted.etc.copies.items():
            _copy(source, tree, f"etc/{path}")
        for path, text in wanted.texts.items():
            tree.content(split(f"etc/{path}"), Meta(0o644, mtime=now), text)
        _add_packages(tree, wanted.packages, now)
        layout.prepare(tree)
        return tree.size_bytes


def _add_packages(tree: Tree, packages: Packages, now: float) -> None:
    for path in packages.directories:
        tree.directory(split(path), Meta(0o755, mtime=now))
    for path, source in packages.copies.items():
        _copy(source, tree, path)
    for path, text in packages.texts.items():
        tree.content(split(path), Meta(0o644, mtime=now), text.encode())
    for path, text in packages.programs.items():
        tree.content(split(path), Meta(0o755, mtime=now), text.encode())


def _copy(source: Path, tree: Tree, path: str) -> None:
    """Copy one small file, if what is opened is still what the plan allowed."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # gone since; the next fingerprint says so
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        data = file.read(MAX_FILE)
    if readable_by_all(status) and b"PRIVATE KEY-----" not in data:
        mode = stat.S_IMODE(status.st_mode) & 0o755
        tree.content(split(path), Meta(mode, mtime=status.st_mtime), data)
