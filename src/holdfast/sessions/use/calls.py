"""What is done inside a sandbox, over its link: commands and files. Knows nothing of rows and states."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from holdfast.errors import ProtocolError, SandboxLost, TooLarge
from holdfast.link.link import Link, Stream
from holdfast.link.pulse import call_with_pulse
from holdfast.link.streams import check, open_stream, read_frame
from holdfast.protocol import frames
from holdfast.protocol.messages import INLINE_FILE_BYTES, MOST_SEGMENTS, STDOUT, unpack_segments
from holdfast.sessions.types import ExecRequest, ExecResult
from holdfast.sessions.use.sight import sight_fields

GRACE_SECONDS = 10.0
"""Beyond a command's own timeout: killing what it started, and the way there and back."""
PING_EVERY_SECONDS = 10.0
FILE_SECONDS = 120.0
_PIECE = 1 << 20
_MANY_SEGMENTS = 1 << 15


async def run_command(
    link: Link, exec_id: str, request: ExecRequest, *, timeout_ms: int, limit: int, queue_seconds: float
) -> ExecResult:
    """Run a command, or join the one with this id. ``queue_seconds`` is how long others may be in front of it."""
    fields, body = _exec_fields(exec_id, request, timeout_ms, limit)
    return await _exec_call(link, "exec", fields, body, timeout_ms / 1000 + queue_seconds + GRACE_SECONDS)


async def start_command(link: Link, exec_id: str, request: ExecRequest, *, timeout_ms: int, limit: int) -> None:
    """Give a command to the runner without waiting for its end; repeating it is safe."""
    fields, body = _exec_fields(exec_id, request, timeout_ms, limit)
    await link.call("exec.start", fields, body, timeout=GRACE_SECONDS)


def _exec_fields(exec_id: str, request: ExecRequest, timeout_ms: int, limit: int) -> frames.Frame:
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
    return fields, cmd + request.stdin


async def get_result(link: Link, exec_id: str, *, wait_seconds: float, brief: bool = False) -> ExecResult:
    """The result of a command of this session, ``brief`` without its output; waits while it runs."""
    fields: frames.Header = {"exec_id": exec_id, "brief": brief}
    return await _exec_call(link, "exec.get", fields, b"", wait_seconds + GRACE_SECONDS)


async def cancel_command(link: Link, exec_id: str) -> ExecResult:
    """Have it end, and wait until it has."""
    return await _exec_call(link, "exec.cancel", {"exec_id": exec_id}, b"", GRACE_SECONDS)


def brief_result(told: frames.Header) -> ExecResult:
    """The result of a command whose output was followed."""
    return _result({**told, "segment_bytes": 0}, b"")


async def _exec_call(link: Link, op: str, fields: frames.Header, body: bytes, seconds: float) -> ExecResult:
    header, told = await call_with_pulse(link, op, fields, body, timeout=seconds, every=PING_EVERY_SECONDS)
    cut = header.get("segment_bytes")
    if isinstance(cut, int) and cut > _MANY_SEGMENTS:  # to put that many together takes long; a thread takes turns
        return await asyncio.to_thread(_result, header, told)
    return _result(header, told)


def _result(header: frames.Header, body: bytes) -> ExecResult:
    """The runner's words, checked: it lives in the sandbox and may be anything by now."""
    try:
        cut = header["segment_bytes"]
        exit_code, duration = header["exit_code"], header["duration_ms"]
        if not (isinstance(cut, int) and isinstance(exit_code, int) and isinstance(duration, int)):
            raise TypeError("a number was expected")
        if not 0 <= cut <= min(len(body), MOST_SEGMENTS * 4):
            raise ValueError("more changes between the streams than a runner keeps")
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
            cancelled=bool(header.get("cancelled")),
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
    header, body = await link.call("fs.read", {"path": path, "limit": limit, **sight_fields()}, timeout=FILE_SECONDS)
    size = header.get("size")
    if refuse_larger and isinstance(size, int) and size > limit:
        raise TooLarge(f"{path} has {size} bytes, more than the {limit} that one call may read; pass max_bytes")
    if not header.get("stream"):
        return body, bool(header.get("truncated"))
    return await _pull(link, path, limit)


async def _pull(link: Link, path: str, limit: int) -> tuple[bytes, bool]:
    async with _file_stream(link, "fs.pull", {"path": path, "limit": limit, **sight_fields()}) as (reader, _writer):
        header, _ = await read_frame(reader)
        size = header.get("size")
        if not isinstance(size, int) or not 0 <= size <= max(limit, INLINE_FILE_BYTES):
            raise ProtocolError("the runner announced a file of no sensible size")
        pieces: list[bytes] = []
        missing = min(size, limit)
        with contextlib.suppress(OSError):
            while missing and (piece := await reader.read(min(missing, _PIECE))):
                pieces.append(piece)
                missing -= len(piece)
        if missing:
            raise SandboxLost(f"{path} ended early: it was changed while it was read, or the sandbox died")
        # In a thread, because to copy a hundred megabytes takes long, and nobody has to wait for it there.
        return await asyncio.to_thread(b"".join, pieces), bool(header.get("truncated")) or size > limit


async def write_file(link: Link, path: str, data: bytes, *, mode: int | None) -> None:
    """Create or replace a file in one step, with the directories above it."""
    if len(data) <= INLINE_FILE_BYTES:
        await link.call("fs.write", {"path": path, "mode": mode}, data, timeout=FILE_SECONDS)
        return
    async with _file_stream(link, "fs.push", {"path": path, "mode": mode, "size": len(data)}) as (reader, writer):
        try:
            view = memoryview(data)
            for start in range(0, len(view), 1 << 20):
                writer.write(view[start : start + (1 << 20)])
                await writer.drain()
        except OSError:
            pass  # the runner hung up early; its reason follows
        check((await read_frame(reader))[0])


@contextlib.asynccontextmanager
async def _file_stream(link: Link, op: str, fields: frames.Header) -> AsyncIterator[Stream]:
    """A stream for one file, with a deadline on the whole transfer."""
    try:
        async with asyncio.timeout(FILE_SECONDS), open_stream(link, op, fields) as stream:
            yield stream
    except TimeoutError:
        raise SandboxLost(f"{op} did not end within {FILE_SECONDS:.0f} s") from None
