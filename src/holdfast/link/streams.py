"""Streams of a link: what is large or long gets a connection of its own, which the runner opens on request.

The kernel does the back-pressure. The caller that opens a stream closes it.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from holdfast.errors import SandboxLost, by_code
from holdfast.link.connection import STREAM_BUFFER
from holdfast.link.link import Link, Stream
from holdfast.protocol import frames

OPEN_SECONDS = 20.0


@contextlib.asynccontextmanager
async def open_stream(link: Link, op: str, fields: frames.Header) -> AsyncIterator[Stream]:
    """Ask the runner for ``op``, take the connection that it opens, and close it at the end of the block.

    There is a deadline on the opening only: what is read and written in the block has deadlines of its own.
    """
    reader, writer = await begin_stream(link, op, fields)
    try:
        yield reader, writer
    finally:
        end_stream(writer)


def end_stream(writer: asyncio.StreamWriter) -> None:
    """Close a stream without waiting for what is unsent to be sent."""
    if writer.transport.get_write_buffer_size():
        writer.transport.abort()
    else:
        writer.close()


def has_unread(reader: asyncio.StreamReader) -> bool:
    """Say whether bytes have come on a stream that nobody has read yet."""
    return bool(reader._buffer)  # type: ignore[attr-defined]  # it has no public question for that


async def begin_stream(link: Link, op: str, fields: frames.Header, *, buffer: int = STREAM_BUFFER) -> Stream:
    """As ``open_stream``; whoever calls this ends the stream. ``buffer`` is as of ``Link.expect_stream``."""
    stream = secrets.token_hex(16)
    arrived = link.expect_stream(stream, buffer=buffer)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await link.call(op, {**fields, "stream": stream}, timeout=OPEN_SECONDS)
            return await arrived
    except BaseException as error:
        link.forget_stream(stream)
        if arrived.done() and not arrived.cancelled() and arrived.exception() is None:
            arrived.result()[1].close()  # it came when we were leaving already
        if isinstance(error, TimeoutError):
            raise SandboxLost(f"the runner opened no stream for {op} within {OPEN_SECONDS:.0f} s") from None
        raise


async def read_frame(reader: asyncio.StreamReader) -> frames.Frame:
    """Read the next frame. Raises ``SandboxLost`` if the stream ends before the frame is complete."""
    try:
        lengths = await reader.readexactly(8)
        header, body = int.from_bytes(lengths[:4]), int.from_bytes(lengths[4:])
        frames.check_lengths(header, body)
        packed = await reader.readexactly(header)
        return frames.decode_header(packed), await reader.readexactly(body) if body else b""
    except (asyncio.IncompleteReadError, OSError):
        raise SandboxLost("the sandbox hung up in the middle of a stream") from None


def check(header: frames.Header) -> frames.Header:
    """Return the header; if it reports an error, raise that error by its code."""
    error = header.get("error")
    if isinstance(error, dict):
        raise by_code(str(error.get("code")))(str(error.get("message")))
    return header


async def send_frame(writer: asyncio.StreamWriter, header: frames.Header, body: bytes = b"") -> None:
    """Write a frame, and wait while too much is unsent. Raises ``SandboxLost`` if the other end is gone."""
    try:
        writer.write(frames.encode(header, body))
        await writer.drain()
    except OSError:
        raise SandboxLost("the sandbox hung up in the middle of a stream") from None
