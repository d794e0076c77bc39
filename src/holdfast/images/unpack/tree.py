"""A directory tree that untrusted names are written into, without ever leaving it.

Every path is walked from the tree's root by directory descriptors, one component at a time, and no component may be
a symbolic link. So a name cannot lead outside, whatever the archive put there before, and there is no moment between
a check and a use. Modes and times of directories are set last (``finish``): writing into them would change both.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from holdfast.errors import BadInput

T = TypeVar("T")
Parts = tuple[str, ...]
EntryKind = Literal["dir", "file", "symlink", "other"]

MAX_DEPTH = 128
LAST_ID = 65_535
NOBODY = 65_534
OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def show(name: str) -> str:
    """Return a name from an archive, fit for an error message."""
    return repr(name if len(name) <= 200 else name[:200] + "…")


def split(name: str) -> Parts:
    """Return the components of a name in an archive. A leading ``/`` means the tree's root; ``..`` is refused."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name:
        raise BadInput(f"{show(name)} leads outside of the image; this archive cannot be trusted")
    if len(parts) > MAX_DEPTH:
        raise BadInput(f"{show(name)} is more than {MAX_DEPTH} directories deep")
    return parts


@dataclass(frozen=True, slots=True)
class Meta:
    """Who owns an entry (ids as inside the sandbox), its mode, and its time. Set-id bits are never kept."""

    mode: int
    uid: int = 0
    gid: int = 0
    mtime: float = 0

    @property
    def mtime_ns(self) -> int:
        # also turns not-a-number, which pax headers can say, into 0
        return int(self.mtime * 1_000_000_000) if 0 <= self.mtime < 1 << 33 else 0


class Tree:
    """Writes below ``root``, which must exist. ``id_base`` None: everything belongs to the caller (rootless)."""

    def __init__(self, root: Path, *, id_base: int | None) -> None:
        self._id_base = id_base
        self._root = os.open(root, OPEN_DIR)
        self._stack: list[tuple[str, int]] = []
        self._later: dict[Parts, Meta] = {}
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._trim(0)
        os.close(self._root)

    def kind(self, parts: Parts) -> EntryKind | None:
        """Return what is there; None if nothing is, or if the way there is not made of directories."""
        if not parts:
            return "dir"
        try:
            mode = os.stat(parts[-1], dir_fd=self._parent(parts, create=False), follow_symlinks=False).st_mode
        except (FileNotFoundError, BadInput):
            return None
        if stat.S_ISDIR(mode):
            return "dir"
        if stat.S_ISLNK(mode):
            return "symlink"
        return "file" if stat.S_ISREG(mode) else "other"

    def read(self, parts: Parts, limit: int) -> bytes | None:
        """Return the content of a regular file, at most ``limit`` bytes of it; None if there is no such file."""
        if self.kind(parts) != "file":
            return None
        fd = os.open(parts[-1], OPEN_FILE, dir_fd=self._parent(parts, create=False))
        with open(fd, "rb") as file:
            return file.read(limit)

    def directory(self, parts: Parts, meta: Meta) -> None:
        """Make a directory, or take over the one that is there; anything else there is replaced."""
        if parts:
            parent = self._parent(parts)
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=parent)
            except FileExistsError:
                if self.kind(parts) != "dir":
                    os.unlink(parts[-1], dir_fd=parent)
                    os.mkdir(parts[-1], 0o700, dir_fd=parent)
        self._later[parts] = meta

    def file(self, parts: Parts, meta: Meta, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write a regular file from ``(offset, data)`` pieces; what no piece covers is a hole."""
        out = self._make(parts, lambda name, parent: os.open(name, _NEW, 0o600, dir_fd=parent))
        try:
            for offset, data in pieces:
                view = memoryview(data)
                while view:
                    done = os.pwrite(out, view, offset)
                    view, offset = view[done:], offset + done
                self.size_bytes += len(data)
            os.ftruncate(out, size)
            if self._id_base is not None:
                os.fchown(out, self._shift(meta.uid), self._shift(meta.gid))
            os.fchmod(out, meta.mode & 0o777)
            os.utime(out, ns=(meta.mtime_ns, meta.mtime_ns))
        finally:
            os.close(out)

    def content(self, parts: Parts, meta: Meta, data: bytes) -> None:
        """Write a small file whose content is at hand."""
        self.file(parts, meta, len(data), [(0, data)])

    def symlink(self, parts: Parts, meta: Meta, target: str) -> None:
        """Make a symbolic link. Its target is text here: it is resolved inside the sandbox only."""
        self._make(parts, lambda name, parent: os.symlink(target, name, dir_fd=parent))
        parent = self._parent(parts)
        if self._id_base is not None:
            os.chown(parts[-1], self._shift(meta.uid), self._shift(meta.gid), dir_fd=parent, follow_symlinks=False)
        os.utime(parts[-1], ns=(meta.mtime_ns, meta.mtime_ns), dir_fd=parent, follow_symlinks=False)

    def hardlink(self, parts: Parts, target: Parts) -> None:
        """Give a file that is already in the tree one more name."""
        if self.kind(target) in (None, "dir"):
            raise BadInput(f"{show('/'.join(parts))} is a hard link to {show('/'.join(target))}, which is no file here")
        if parts == target:
            return
        source = os.dup(self._parent(target, create=False))
        try:
            self._make(
                parts,
                lambda name, parent: os.link(
                    target[-1], name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False
                ),
            )
        finally:
            os.close(source)

    def finish(self) -> None:
        """Give all directories their owners, modes and times, the deepest first."""
        for parts in sorted(self._later, reverse=True):
            meta = self._later[parts]
            fd = self._open(parts, create=False)
            if self._id_base is not None:
                os.fchown(fd, self._shift(meta.uid), self._shift(meta.gid))
            # the owner can always get in where there is no root to do it: or it could not be removed again
            os.fchmod(fd, meta.mode & 0o1777 | (0o700 if self._id_base is None else 0))
            os.utime(fd, ns=(meta.mtime_ns, meta.mtime_ns))
        self._later.clear()

    def _shift(self, number: int) -> int:
        assert self._id_base is not None
        return self._id_base + (number if 0 <= number <= LAST_ID else NOBODY)

    def _make(self, parts: Parts, make: Callable[[str, int], T]) -> T:
        """Make something by its name and the descriptor of its directory, instead of what is there."""
        if not parts:
            raise BadInput("the root of an image must be a directory; this archive says that it is something else")
        parent = self._parent(parts)
        try:
            return make(parts[-1], parent)
        except FileExistsError:
            self._clear(parts, parent)
            return make(parts[-1], parent)

    def _clear(self, parts: Parts, parent: int) -> None:
        """A later entry of the same name wins, as with tar; but it never removes a directory that has entries."""
        if self.kind(parts) != "dir":
            os.unlink(parts[-1], dir_fd=parent)
            return
        try:
            os.rmdir(parts[-1], dir_fd=parent)
        except OSError as error:
            raise BadInput(f"{show('/'.join(parts))} is both a directory with entries and something else") from error
        self._later.pop(parts, None)

    def _parent(self, parts: Parts, *, create: bool = True) -> int:
        return self._open(parts[:-1], create=create)

    def _open(self, parts: Parts, *, create: bool) -> int:
        """Return a descriptor of that directory; it stays ours, and open until another directory is asked for."""
        same = 0
        while same < min(len(parts), len(self._stack)) and self._stack[same][0] == parts[same]:
            same += 1
        self._trim(same)
        for depth in range(same, len(parts)):
            above = self._stack[-1][1] if self._stack else self._root
            name = parts[depth]
            try:
                fd = os.open(name, OPEN_DIR, dir_fd=above)
            except FileNotFoundError:
                if not create:
                    raise
                os.mkdir(name, 0o700, dir_fd=above)
                self._later[parts[: depth + 1]] = Meta(0o755, mtime=time.time())
                fd = os.open(name, OPEN_DIR, dir_fd=above)
            except NotADirectoryError as error:
                way = show("/".join(parts[: depth + 1]))
                raise BadInput(f"entries below {way}, which is no directory but a link or a file") from error
            self._stack.append((name, fd))
        return self._stack[-1][1] if self._stack else self._root

    def _trim(self, depth: int) -> None:
        while len(self._stack) > depth:
            os.close(self._stack.pop()[1])
