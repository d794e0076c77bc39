"""From a tar stream to a folder, trusting nothing in the stream.

Every name is resolved one component at a time, from the folder's own descriptor, without following any link: neither a
link that the archive has planted nor one that was there before can lead a write out of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import zlib

from holdfast.errors import BadInput, Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Protocol

    class Source(Protocol):
        def read(self, size: int, /) -> bytes: ...


CHUNK = 1 << 18
MAX_DEPTH = 512
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BROKEN = (tarfile.TarError, zlib.error, EOFError, ValueError, OverflowError)
_GZIP = b"\x1f\x8b"


class Unpacker:
    """Fills one folder. ``files`` and ``bytes`` count what was written; ``left_out`` names links that were not made."""

    def __init__(self, folder: str, *, links_outside: bool) -> None:
        """``links_outside``: whether symbolic links may point out of the folder. In a sandbox they do no harm."""
        self.files = 0
        self.bytes = 0
        self.left_out: list[str] = []
        self._links_outside = links_outside
        self._modes: list[tuple[list[str], int]] = []
        self._made = not os.path.isdir(folder)
        os.makedirs(folder, exist_ok=True)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Unpacker:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._root)

    def run(self, source: Source) -> None:
        """Unpack all of it. Each file takes its place when it is whole; what was unpacked before a failure stays.

        Raises ``BadInput`` for what is no tar or wants out, ``Conflict`` for what is in the way, or OSError. Each
        names the member.
        """
        peeked = _Peeked(source)
        mode = "r|gz" if peeked.head == _GZIP else "r|"
        try:
            archive = tarfile.open(mode=mode, fileobj=peeked, bufsize=CHUNK)  # type: ignore[call-overload]  # noqa: SIM115 - nothing to close: it owns no file
            while (member := archive.next()) is not None:
                self._take(archive, member)
                archive.members.clear()
        except _BROKEN as error:
            raise BadInput(f"the archive cannot be read as tar or tar.gz: {str(error)[:200]}") from None
        self._set_modes()

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Unpack one member; an error names it."""
        try:
            self._write(archive, member, _parts(member.name))
        except (BadInput, Conflict) as error:
            raise type(error)(f"{member.name!r} in the archive: {error.message}") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, member.name) from None

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parts: list[str]) -> None:
        mode = member.mode & 0o777  # no setuid, setgid or sticky bits from elsewhere
        if member.isdir():
            if parts or self._made:
                self._modes.append((parts, mode))
            os.close(self._open(parts))
        elif not parts:
            raise BadInput("it has no name")
        elif member.isreg():
            self._file(parts, mode, member, archive)
        elif member.issym():
            self._link(parts, member)
        elif member.islnk():
            self._hard_link(parts, member)
        else:
            raise BadInput("it is a device or a pipe; leave it out")

    def _open(self, parts: list[str]) -> int:
        """Return a descriptor of the folder with this name; makes what is missing. Never goes through a link."""
        here = os.dup(self._root)
        try:
            for part in parts:
                try:
                    os.mkdir(part, 0o755, dir_fd=here)
                except FileExistsError:
                    pass
                there = os.open(part, _DIRECTORY, dir_fd=here)
                os.close(here)
                here = there
        except OSError as error:
            os.close(here)
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # with O_NOFOLLOW, a link is the latter
                raise Conflict(f"{'/'.join(parts)} goes through a link, or is no folder; remove that first") from None
            raise
        return here

    def _file(self, parts: list[str], mode: int, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        content = archive.extractfile(member)
        assert content is not None  # it is a regular file
        parent = self._open(parts[:-1])
        scratch = _scratch_name()
        try:
            fd = os.open(scratch, _NEW_FILE, 0o600, dir_fd=parent)
            try:
                self.bytes += _copy(content, fd)
                os.fchmod(fd, mode)
                _set_time(fd, member.mtime)
            finally:
                os.close(fd)
            self._take_place(scratch, parts, parent)
        finally:
            _clean_up(scratch, parent)

    def _link(self, parts: list[str], member: tarfile.TarInfo) -> None:
        if not self._links_outside and not stays_inside(member.linkname, len(parts) - 1):
            self.left_out.append(member.name)
            return
        parent = self._open(parts[:-1])
        scratch = _scratch_name()
        try:
            os.symlink(member.linkname, scratch, dir_fd=parent)
            self._take_place(scratch, parts, parent)
        finally:
            _clean_up(scratch, parent)

    def _hard_link(self, parts: list[str], member: tarfile.TarInfo) -> None:
        """Link to another file of the folder, and nothing else: a link elsewhere may mean something else there."""
        target = _parts(member.linkname)
        source_parent = self._open(target[:-1])
        parent = self._open(parts[:-1])
        scratch = _scratch_name()
        try:
            if not target or not stat.S_ISREG(os.stat(target[-1], dir_fd=source_parent, follow_symlinks=False).st_mode):
                raise BadInput(f"it is a link to {member.linkname!r}, which is no file")
            os.link(target[-1], scratch, src_dir_fd=source_parent, dst_dir_fd=parent, follow_symlinks=False)
            self._take_place(scratch, parts, parent)
        finally:
            os.close(source_parent)
            _clean_up(scratch, parent)

    def _take_place(self, scratch: str, parts: list[str], parent: int) -> None:
        try:
            os.rename(scratch, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except IsADirectoryError:
            raise Conflict("a folder of that name is there; remove it first") from None
        self.files += 1

    def _set_modes(self) -> None:
        """Set the modes at the end, the deepest first: a folder that cannot be written could not have been filled."""
        for parts, mode in reversed(self._modes):
            fd = self._open(parts)
            try:
                os.fchmod(fd, mode)
            except PermissionError:
                pass  # it was there before and belongs to somebody else
            finally:
                os.close(fd)


class _Peeked:
    """A source whose first two bytes are known."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.head = source.read(1)
        self.head += source.read(1) if self.head else b""
        self._unread = self.head

    def read(self, size: int, /) -> bytes:
        unread, self._unread = self._unread, b""
        return unread + self._source.read(size - len(unread))


def _parts(name: str) -> list[str]:
    """Return the components of a member's name. Raises ``BadInput`` for one that leads out."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise BadInput(f"{name!r} leads out of the folder; names must be relative, without ..")
    if len(parts) > MAX_DEPTH:
        raise BadInput(f"it is over {MAX_DEPTH} folders deep")
    return parts


def stays_inside(target: str, depth: int) -> bool:
    """Say whether a symbolic link in a folder ``depth`` below the top cannot lead out of it, whatever else is linked.

    Only leading ``..`` count by the real tree; after a name, which may itself be a link, a ``..`` could lead anywhere.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return not target.startswith("/") and ups <= depth and ".." not in parts[ups:]


def _copy(content: IO[bytes], fd: int) -> int:
    total = 0
    while piece := content.read(CHUNK):
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]
        total += len(piece)
    return total


def _set_time(fd: int, mtime: float) -> None:
    try:
        os.utime(fd, (mtime, mtime))
    except (OSError, OverflowError, ValueError):
        pass  # a time that this file system cannot hold


def _scratch_name() -> str:
    return f".holdfast-{os.urandom(8).hex()}"


def _clean_up(scratch: str, parent: int) -> None:
    """Remove the temporary file. One that took its place is not there any more, unless it was the same file already."""
    try:
        os.unlink(scratch, dir_fd=parent)
    except FileNotFoundError:
        pass
    finally:
        os.close(parent)
