"""A file, decompressed, read once from front to back: what ``tarfile`` reads archives through.

It limits how much ``tarfile`` may read for one header, because ``tarfile`` keeps headers in memory, and it knows
the digest of what was read and whether the archive really came to its end.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from holdfast.errors import BadInput, TooLarge
from holdfast.images.unpack.budget import Budget

CHUNK = 1 << 20
MAX_HEADER = 1 << 20
_BLOCK = 512


class TarStream:
    """As much of a file object as ``tarfile`` needs to read: ``read``, ``tell`` and ``seek`` forwards."""

    def __init__(self, raw: BinaryIO, budget: Budget) -> None:
        self._raw = raw
        self._budget = budget
        self._hash = hashlib.sha256()
        self._position = 0
        self._header_bytes = 0
        self._last = b""

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    @property
    def at_end_mark(self) -> bool:
        """Whether the last thing that was read is the block of zeros that ends an archive."""
        return self._last == bytes(_BLOCK)

    def new_header(self) -> None:
        self._header_bytes = 0

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        """For ``tarfile``, which reads headers only: contents are read with ``data``."""
        self._header_bytes += size
        if size < 0 or self._header_bytes > MAX_HEADER:
            raise BadInput("the archive has a header that is implausibly large; it is damaged or hostile")
        self._last = self._take(size)
        return self._last

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or position < self._position:
            raise BadInput("the archive's headers point backwards; it is damaged or hostile")
        while self._position < position and self._take(min(CHUNK, position - self._position)):
            pass
        return self._position

    def data(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes, in chunks."""
        while size > 0:
            chunk = self._take(min(CHUNK, size))
            if not chunk:
                raise EOFError
            size -= len(chunk)
            yield chunk

    def drain(self) -> None:
        while self._take(CHUNK):
            pass

    def _take(self, size: int) -> bytes:
        self._budget.check()
        data = self._raw.read(size)
        while len(data) < size and (more := self._raw.read(size - len(data))):
            data += more
        self._hash.update(data)
        self._position += len(data)
        if self._position > 2 * self._budget.max_bytes:
            raise TooLarge(f"the archive is larger than {2 * self._budget.max_bytes >> 20} MB; make it smaller")
        return data


@contextmanager
def open_stream(source: Path, budget: Budget) -> Iterator[TarStream]:
    """Open a tar file, whatever it is compressed with."""
    with open(source, "rb") as file:
        magic = file.read(6)
        file.seek(0)
        unpack = next((unpack for begin, unpack in _FORMATS.items() if magic.startswith(begin)), nullcontext)
        with unpack(file) as plain:
            yield TarStream(cast(BinaryIO, plain), budget)


@contextmanager
def _unzstd(file: BinaryIO) -> Iterator[BinaryIO]:
    """Through the ``zstd`` tool, because the standard library cannot."""
    tool = shutil.which("zstd")
    if tool is None:
        raise BadInput("this archive is compressed with zstd: install the zstd tool, or compress it with gzip or xz")
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # ``file`` has read ahead, and the tool reads the descriptor
    process = subprocess.Popen(
        [tool, "-dcq"], stdin=file.fileno(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={"PATH": os.defpath}
    )
    assert process.stdout is not None
    try:
        yield cast(BinaryIO, process.stdout)
        process.stdout.close()
        if process.wait() != 0:
            raise EOFError
    finally:
        process.stdout.close()
        process.kill()
        process.wait()


_FORMATS: Mapping[bytes, Callable[[BinaryIO], AbstractContextManager[object]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"\x28\xb5\x2f\xfd": _unzstd,
}
"""What opens an archive, by how it begins."""
