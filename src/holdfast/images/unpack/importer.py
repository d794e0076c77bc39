"""Turns what a person has, a tar or a directory, into an image's root file system on disk."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.drivers.disk.file_copy import no_room
from holdfast.errors import BadInput, DiskFull, HoldfastError
from holdfast.images import layout
from holdfast.images.unpack import archive, folder
from holdfast.images.unpack.budget import Budget
from holdfast.images.unpack.layers import LayersFound
from holdfast.images.unpack.tree import Tree

_ROOT_SIGNS = ("bin", "sbin", "usr")
# what skopeo calls an archive with this in it; newer ones of docker save have both
_LAYER_SIGNS = {"manifest.json": "docker-archive", "oci-layout": "oci-archive"}
# names, link targets and sizes that no file system here takes
_IMPOSSIBLE = (errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG, errno.ELOOP, errno.EMLINK, errno.ENOENT, errno.EILSEQ)


@dataclass(frozen=True, slots=True)
class Imported:
    """``digest`` is that of the tar inside the archive; a directory has none."""

    size_bytes: int
    digest: str | None


def import_root(source: Path, place: Path, *, id_base: int | None, budget: Budget) -> Imported:
    """Make ``place/rootfs`` from ``source``. ``place`` must exist and be empty; after an error, remove it.

    Raises ``BadInput`` for what is not a root file system, ``LayersFound`` for what is made of layers, ``TooLarge``,
    and what ``explained`` is for.
    """
    is_tar = _is_tar(source)
    unpacked = place / "unpacked"
    unpacked.mkdir(0o700)
    with Tree(unpacked, id_base=id_base) as tree:
        digest = None
        if is_tar:
            digest = archive.unpack(source, tree, budget)
        else:
            folder.copy(source, tree, budget)
        tree.finish()
        size = tree.size_bytes
    rootfs = place / "rootfs"
    _find_root(unpacked, source).rename(rootfs)
    if unpacked.exists():
        unpacked.rmdir()
    with Tree(rootfs, id_base=id_base) as tree:
        layout.prepare(tree)
    return Imported(size, digest)


def _is_tar(source: Path) -> bool:
    """Say whether it is a file; False for a directory."""
    try:
        mode = source.stat().st_mode
        if not os.access(source, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadInput(
            f"cannot read {source} ({error.strerror}); give the path of a tar file or a directory"
        ) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise BadInput(f"{source} is neither a file nor a directory; give the path of a tar file or a directory")
    return stat.S_ISREG(mode)


def _find_root(unpacked: Path, source: Path) -> Path:
    """Return the root itself, or the only directory in it, if that is where the root is."""
    if _is_root(unpacked):
        return unpacked
    names = sorted(path.name for path in unpacked.iterdir())
    if transport := next((_LAYER_SIGNS[name] for name in _LAYER_SIGNS if name in names), None):
        form = "oci" if source.is_dir() else transport
        raise LayersFound(f"{form}:{source}")
    if len(names) == 1 and _is_root(unpacked / names[0]):
        return unpacked / names[0]
    found = ", ".join(ascii(name) for name in names[:5]) or "nothing"
    raise BadInput(
        f"{source} is not a root file system: it has no bin, sbin or usr at its top, but {found}. "
        "Import the output of docker export or debootstrap, or a directory like it"
    )


def _is_root(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    return any((path / sign).is_symlink() or (path / sign).is_dir() for sign in _ROOT_SIGNS)


@contextmanager
def explained(what: str, root: Path) -> Iterator[None]:
    """Turn what the file system says, while ``what`` is made below ``root``, into errors that say what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if no_room(error):
            raise DiskFull(f"no space left for {what} below {root}; free some, then try again") from error
        if error.errno in _IMPOSSIBLE:
            raise BadInput(f"{what} has an entry that cannot be made here ({reason})") from error
        raise HoldfastError(f"making {what} failed ({reason}); may the daemon write below {root}?") from error
