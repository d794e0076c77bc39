"""Unpacks a tar of a root file system into a ``Tree``. The archive may be hostile.

Kept: directories, files, symbolic and hard links, their modes, times and numeric owners. Left out: device nodes,
pipes, set-id bits, extended attributes (and so file capabilities). ``tarfile`` only parses here; it writes nothing.
"""

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from holdfast.errors import BadInput
from holdfast.images.unpack.budget import Budget
from holdfast.images.unpack.stream import TarStream, open_stream
from holdfast.images.unpack.tree import Meta, Tree, show, split

# All that damaged input makes tarfile and the decompressors raise, besides OSError without an errno.
_DAMAGE = (
    tarfile.TarError,
    ValueError,
    ArithmeticError,
    LookupError,
    EOFError,
    RecursionError,
    zlib.error,
    lzma.LZMAError,
)


def unpack(source: Path, tree: Tree, budget: Budget) -> str:
    """Unpack ``source`` and return the digest of the tar inside. Raises ``BadInput`` and ``TooLarge``."""
    try:
        with open_stream(source, budget) as stream:
            for member in _members(stream):
                _write(member, stream, tree, budget)
            if not stream.at_end_mark:
                raise BadInput(f"{source} is damaged or cut off: it has no end mark; make or fetch it again")
            stream.drain()
            return stream.digest
    except _DAMAGE as error:
        raise BadInput(f"{source} is not a tar archive that can be read ({error or 'it is cut off'})") from error
    except OSError as error:
        if error.errno is None:  # how gzip and bz2 say that their input is broken
            raise BadInput(f"{source} is damaged ({error}); make or fetch it again") from error
        raise


def _members(stream: TarStream) -> Iterator[tarfile.TarInfo]:
    with tarfile.open(mode="r:", fileobj=cast(IO[bytes], stream)) as tar:
        while (member := tar.next()) is not None:
            yield member
            # tarfile remembers all that it has seen, for a second look that we never take
            tar.members = []  # type: ignore[attr-defined]  # public, but not in the stubs
            tar.pax_headers = {}
            stream.new_header()


def _write(member: tarfile.TarInfo, stream: TarStream, tree: Tree, budget: Budget) -> None:
    parts = split(member.name)
    budget.entry(member.size if member.isreg() else 0)
    meta = Meta(member.mode, member.uid, member.gid, member.mtime)
    if member.isdir():
        tree.directory(parts, meta)
    elif member.issym():
        tree.symlink(parts, meta, member.linkname)
    elif member.islnk():
        tree.hardlink(parts, split(member.linkname))
    elif member.isreg():
        segments = _segments(member)
        stream.seek(member.offset_data)
        tree.file(parts, meta, member.size, _pieces(stream, segments))


def _segments(member: tarfile.TarInfo) -> list[tuple[int, int]]:
    """Return where the data of a file goes, as (offset, length): all of it, or what is not a hole in a sparse file."""
    if member.size < 0:
        raise BadInput(f"{show(member.name)} has a negative size; the archive is damaged or hostile")
    sparse = cast(list[tuple[int, int]] | None, member.sparse)
    if sparse is None:
        return [(0, member.size)]
    end = 0
    sparse = [(offset, length) for offset, length in sparse if length]  # GNU tar fills its maps up with zeros
    for offset, length in sparse:
        if offset < end or length < 0 or offset + length > member.size:
            raise BadInput(
                f"{show(member.name)} has a map of holes that makes no sense; the archive is damaged or hostile"
            )
        end = offset + length
    return sparse


def _pieces(stream: TarStream, segments: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    for offset, length in segments:
        for chunk in stream.data(length):
            yield offset, chunk
            offset += len(chunk)
