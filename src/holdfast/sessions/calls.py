"""What is done inside a sandbox, over its link: commands and files. Knows nothing of rows and states."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

from holdfast.errors import ProtocolError, SandboxLost, TooLarge, by_code
from holdfast.link.link import Link, Stream
from holdfast.link.pulse import call_with_pulse
from holdfast.protocol import frames
from holdfast.protocol.messages import INLINE_FILE_BYTES, STDOUT, unpack_segments
from holdfast.sessions.types import ExecRequest, ExecResult

GRACE_SECONDS = 10.0
"""Beyond a command's own timeout: killing what it started, and the way there and back."""
PING_EVERY_SECONDS = 10.0
FILE_SECONDS = 120.0


async def run_command(
    link: Link, exec_id: str, request: ExecRequest, *, timeout_ms: int, limit: int, queue_seconds: float
) -> ExecResult:
    """Run a command, or join the one with this id. ``queue_seconds`` is how long others may be in front of it."""
    cmd = request.cmd.encode()
    fields: frames.Header = {
        "exec_id": exec_id,
        "timeout_ms": timeout_ms,
        "limit": limit,
        "shell": request.shell,
        "env": dict(request.env),
        "cwd": request.cwd,
        "cmd_bytes": len(cmd),
    }
    seconds = timeout_ms / 1000 + queue_seconds + GRACE_SECONDS
    return await _exec_call(link, "exec", fields, cmd + request.stdin, seconds)


async def get_result(link: Link, exec_id: str, *, wait_seconds: float) -> ExecResult:
    """The result of a command of this session; waits while it runs."""
    return await _exec_call(link, "exec.get", {"exec_id": exec_id}, b"", wait_seconds + GRACE_SECONDS)


async def _exec_call(link: Link, op: str, fields: frames.Header, body: bytes, seconds: float) -> ExecResult:
    return _result(*await call_with_pulse(link, op, fields, body, timeout=seconds, every=PING_EVERY_SECONDS))


def _result(header: frames.Header, body: bytes) -> ExecResult:
    """The runner's words, checked: it lives in the sandbox and may be anything by now."""
    try:
        cut = header["segment_bytes"]
        exit_code, duration = header["exit_code"], header["duration_ms"]
        if not (isinstance(cut, int) and isinstance(exit_code, int) and isinstance(duration, int)):
            raise TypeError("a number was expected")
        output = body[cut:]
        stdout, stderr = _split(output, unpack_segments(body[:cut]))
        return ExecResult(
            exec_id=str(header["exec_id"]),
            exit_code=exit_code,
            cwd=str(header["cwd"]).encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            output=output,
            stdout=stdout,
            stderr=stderr,
            truncated=bool(header["truncated"]),
            timed_out=bool(header["timed_out"]),
            duration_ms=duration,
            shell_restarted=bool(header["shell_restarted"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the runner sent a result that makes no sense: {error}") from error


def _split(output: bytes, segments: list[tuple[int, int]]) -> tuple[bytes, bytes]:
    if len({stream for stream, _length in segments}) <= 1:  # the usual case: no copy
        only_stderr = bool(segments) and segments[0][0] != STDOUT
        return (b"", output) if only_stderr else (output, b"")
    pieces: tuple[list[bytes], list[bytes]] = ([], [])
    position = 0
    for stream, length in segments:
        pieces[stream].append(output[position : position + length])
        position += length
    return b"".join(pieces[0]), b"".join(pieces[1])


async def read_file(link: Link, path: str, *, limit: int, refuse_larger: bool) -> tuple[bytes, bool]:
    """At most ``limit`` bytes of a file and whether there is more; or ``TooLarge`` instead, if so asked."""
    header, body = await link.call("fs.read", {"path": path, "limit": limit}, timeout=FILE_SECONDS)
    size = header.get("size")
    if refuse_larger and isinstance(size, int) and size > limit:
        raise TooLarge(f"{path} has {size} bytes, more than the {limit} that one call may read; pass max_bytes")
    if not header.get("stream"):
        return body, bool(header.get("truncated"))
    return await _pull(link, path, limit)


async def _pull(link: Link, path: str, limit: int) -> tuple[bytes, bool]:
    async with _stream(link, "fs.pull", {"path": path, "limit": limit}) as (reader, _writer):
        header = await _read_header(reader)
        size = header.get("size")
        if not isinstance(size, int) or not 0 <= size <= max(limit, INLINE_FILE_BYTES):
            raise ProtocolError("the runner announced a file of no sensible size")
        try:
            data = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise SandboxLost(f"{path} ended early: it was changed while it was read, or the sandbox died") from None
        return data[:limit], bool(header.get("truncated")) or size > limit


async def write_file(link: Link, path: str, data: bytes, *, mode: int | None) -> None:
    """Create or replace a file in one step, with the directories above it."""
    if len(data) <= INLINE_FILE_BYTES:
        await link.call("fs.write", {"path": path, "mode": mode}, data, timeout=FILE_SECONDS)
        return
    async with _stream(link, "fs.push", {"path": path, "mode": mode, "size": len(data)}) as (reader, writer):
        try:
            view = memoryview(data)
            for start in range(0, len(view), 1 << 20):
                writer.write(view[start : start + (1 << 20)])
                await writer.drain()
        except OSError:
            pass  # the runner hung up early; its reason follows
        header = await _read_header(reader)
        error = header.get("error")
        if isinstance(error, dict):
            raise by_code(str(error.get("code")))(str(error.get("message")))


@contextlib.asynccontextmanager
async def _stream(link: Link, op: str, fields: frames.Header) -> AsyncIterator[Stream]:
    """A connection of its own for one transfer, with a deadline on everything, closed in any case."""
    stream = secrets.token_hex(16)
    arrived = link.expect_stream(stream)
    try:
        async with asyncio.timeout(FILE_SECONDS):
            await link.call(op, {**fields, "stream": stream}, timeout=FILE_SECONDS)
            reader, writer = await arrived
            try:
                yield reader, writer
            finally:
                writer.close()
    except TimeoutError:
        raise SandboxLost(f"{op} did not end within {FILE_SECONDS:.0f} s") from None
    finally:
        link.forget_stream(stream)


async def _read_header(reader: asyncio.StreamReader) -> frames.Header:
    """One frame without a body."""
    try:
        lengths = await reader.readexactly(8)
        header, body = int.from_bytes(lengths[:4]), int.from_bytes(lengths[4:])
        frames.check_lengths(header, body)
        return frames.decode_header(await reader.readexactly(header))
    except (asyncio.IncompleteReadError, OSError):
        raise SandboxLost("the sandbox hung up in the middle of a file") from None
