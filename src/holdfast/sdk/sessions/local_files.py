"""Files and folders of this machine as streams of bytes, without blocking the event loop."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

from holdfast.archives.pack import pack
from holdfast.archives.unpack import Unpacker
from holdfast.sdk.sessions.file_results import FolderCopy

CHUNK = 1 << 20


async def read_file(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb", buffering=0) as file:
        while piece := await asyncio.to_thread(file.read, CHUNK):
            yield piece


async def write_file(path: Path, pieces: AsyncIterator[bytes]) -> int:
    """Create or replace a file when all of it has come; until then, and after a failure, it is as it was."""
    scratch = path.with_name(f".{secrets.token_hex(12)}")  # not longer than any name may be, whatever is in ``path``
    size = 0
    try:
        with await asyncio.to_thread(scratch.open, "xb", buffering=0) as file:
            async for piece in _gathered(pieces):
                size += len(piece)
                await asyncio.to_thread(_write, file.fileno(), piece)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return size


async def _gathered(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield larger pieces: each costs a visit to a thread."""
    waiting = bytearray()
    async for piece in pieces:
        waiting += piece
        if len(waiting) >= CHUNK:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def read_folder(folder: Path) -> AsyncIterator[bytes]:
    """Yield a tar of what is in a folder, made by a thread at the other end of a pipe."""
    readable, writable = os.pipe()
    packing = asyncio.create_task(asyncio.to_thread(_pack_into, folder, writable))
    reader = asyncio.StreamReader(limit=CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb", buffering=0)
    )
    try:
        while piece := await reader.read(CHUNK):
            yield piece
        await packing
    finally:
        transport.close()
        with contextlib.suppress(BrokenPipeError):  # how the thread learns that nobody reads any more
            await packing


def _pack_into(folder: Path, writable: int) -> None:
    try:
        pack(str(folder), lambda piece: _write(writable, piece))
    finally:
        os.close(writable)


async def write_folder(folder: Path, pieces: AsyncIterator[bytes]) -> FolderCopy:
    """Unpack a tar, by a thread at the other end of a pipe. Links that lead out of the folder are left out."""
    readable, writable = os.pipe()
    unpacking = asyncio.create_task(asyncio.to_thread(_unpack_from, readable, folder))
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(writable, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # the thread has given up, and says why
    except BaseException:
        transport.abort()
        await asyncio.wait([unpacking])
        unpacking.exception()  # a tar that ends in the middle; why it does is what counts
        raise
    writer.close()
    return await unpacking


def _unpack_from(readable: int, folder: Path) -> FolderCopy:
    with open(readable, "rb", buffering=0) as source, Unpacker(str(folder), links_outside=False) as unpacker:
        unpacker.run(source)
        while source.read(CHUNK):
            pass  # padding
        return FolderCopy(unpacker.files, unpacker.bytes, tuple(unpacker.left_out))


async def counted(pieces: AsyncIterator[bytes], progress: Callable[[int], None] | None) -> AsyncGenerator[bytes, None]:
    """Yield the same pieces; ``progress`` is told the size of each. Closes them with itself."""
    try:
        async for piece in pieces:
            yield piece
            if progress is not None:
                progress(len(piece))
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
