"""Commands of sessions: run to their end; or started, followed and cancelled, and they run on when nobody follows.

The replies are checked: the runner lives in the sandbox and may be anything by now.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import structlog

from holdfast.errors import BadInput, HoldfastError, ProtocolError
from holdfast.link.link import Link
from holdfast.link.pulse import call_with_pulse
from holdfast.protocol import frames
from holdfast.protocol.messages import MOST_SEGMENTS, STDOUT, unpack_segments
from holdfast.sessions.context import Context
from holdfast.sessions.ids import exec_id_for, new_exec_id
from holdfast.sessions.session import Session, judged
from holdfast.sessions.types import DEFAULT_SHELL, ExecRequest, ExecResult
from holdfast.sessions.use.follow import Attached, Chunk, End, follow
from holdfast.sessions.use.using import Using

log = structlog.get_logger(__name__)

GRACE_SECONDS = 10.0
"""Beyond a command's own timeout: killing what it started, and the way there and back."""
PING_EVERY_SECONDS = 10.0
_MANY_SEGMENTS = 1 << 15


class Execs:
    """Commands of this node's sessions."""

    def __init__(self, context: Context, using: Using) -> None:
        self._context = context
        self._settings = context.settings
        self._using = using

    async def run(self, session_id: str, request: ExecRequest, *, idempotency_key: str | None) -> ExecResult:
        """Run a command to its end, or join the one with this key. Others may be in front of it, in the same shell."""
        session, exec_id, timeout_ms, frame = await self._prepare(session_id, request, idempotency_key)
        with session.in_use():
            async with session.shells[request.shell]:
                session.oom.begin(exec_id)
                seconds = (timeout_ms + self._settings.max_exec_timeout_ms) / 1000
                result = await _call(session.link, "exec", *frame, seconds=seconds)
                return self._settle(session, result, request.shell)

    async def result(self, session_id: str, exec_id: str) -> ExecResult:
        """Return the result of a command; wait while it runs."""
        async with self._using.use(session_id) as session:
            fields: frames.Header = {"exec_id": exec_id, "brief": False}
            return self._settle(session, await _call(session.link, "exec.get", fields, seconds=self._patience))

    async def start(self, session_id: str, request: ExecRequest, *, idempotency_key: str | None) -> str:
        """Give the command to the session's shell; returns its exec id as soon as the runner has it."""
        session, exec_id, _timeout_ms, frame = await self._prepare(session_id, request, idempotency_key)
        with session.in_use():
            session.oom.begin(exec_id)
            await session.link.call("exec.start", *frame, timeout=GRACE_SECONDS)
            session.running[exec_id] = request.shell
        self._context.operations.spawn(exec_id, lambda: self._attend(session, exec_id))
        return exec_id

    async def _attend(self, session: Session, exec_id: str) -> None:
        """Until it has ended: the session is busy, whether anybody follows or not."""
        fields: frames.Header = {"exec_id": exec_id, "brief": True}
        try:
            result = await _call(session.link, "exec.get", fields, seconds=self._patience)
            self._settle(session, result, session.running.pop(exec_id, None))
        except HoldfastError as error:
            event = "exec.refused" if isinstance(error, BadInput) else "exec.lost"
            log.info(event, session_id=session.id, exec_id=exec_id, error=error.message)
        finally:
            session.running.pop(exec_id, None)
            session.touch(self._context.clock())

    async def follow(
        self, session_id: str, exec_id: str, *, offset: int
    ) -> AsyncGenerator[Attached | Chunk | ExecResult, None]:
        """Its output from ``offset`` on, as it is written; at last its result, without the output.

        Who has the result can put the session to sleep: by then neither this nor the command is a use of it.
        """
        result: ExecResult | None = None
        async with self._using.use(session_id) as session:
            events = follow(session.link, "exec.attach", {"exec_id": exec_id}, offset)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, End):
                        result = _result({**event.told, "segment_bytes": 0}, b"")
                        result = self._settle(session, result, session.running.pop(exec_id, None))
                    else:
                        yield event
        if result is not None:
            yield result

    async def cancel(self, session_id: str, exec_id: str) -> ExecResult:
        """End it as a timeout would; returns its result. One that has ended already is left as it is."""
        async with self._using.use(session_id) as session:
            return self._settle(session, await _call(session.link, "exec.cancel", {"exec_id": exec_id}, seconds=0.0))

    @property
    def _patience(self) -> float:
        """Its own time, and that of others in front of it."""
        return 2 * self._settings.max_exec_timeout_ms / 1000

    async def _prepare(
        self, session_id: str, request: ExecRequest, idempotency_key: str | None
    ) -> tuple[Session, str, int, frames.Frame]:
        """The session, and the command's id, time limit in ms and frame. Raises ``BadInput`` for a bad time limit."""
        most = self._settings.max_exec_timeout_ms
        timeout = self._settings.exec_timeout_ms if request.timeout_ms is None else request.timeout_ms
        if not 1 <= timeout <= most:
            raise BadInput(
                f"timeout_ms: {timeout} is not between 1 and {most}, the setting max_exec_timeout_ms; a background "
                "process has no limit (POST …/processes, `holdfast exec --no-limit`)"
            )
        session = await self._using.find(session_id)
        exec_id = exec_id_for(session_id, idempotency_key) if idempotency_key else new_exec_id()
        return session, exec_id, timeout, exec_fields(exec_id, request, timeout, self._settings.max_output_bytes)

    def _settle(self, session: Session, result: ExecResult, shell: str | None = None) -> ExecResult:
        """Return the result with what is known of its memory. With the name of its shell its end is noted, once."""
        result = judged(session.oom, result)
        if shell is not None:
            self._context.metrics.execs.labels(_outcome(result)).inc()
        if shell == DEFAULT_SHELL:
            session.cwd = result.cwd
        return result


def exec_fields(exec_id: str, request: ExecRequest, timeout_ms: int, limit: int) -> frames.Frame:
    """Return the header and the body of a command's frame; the runner keeps at most ``limit`` bytes of its output."""
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


def _outcome(result: ExecResult) -> str:
    if result.timed_out or result.cancelled:
        return "timed_out" if result.timed_out else "cancelled"
    return "shell_ended" if result.shell_restarted else "failed" if result.exit_code else "ok"


async def _call(link: Link, op: str, fields: frames.Header, body: bytes = b"", *, seconds: float) -> ExecResult:
    timeout = seconds + GRACE_SECONDS
    header, told = await call_with_pulse(link, op, fields, body, timeout=timeout, every=PING_EVERY_SECONDS)
    cut = header.get("segment_bytes")
    if isinstance(cut, int) and cut > _MANY_SEGMENTS:  # to put that many together takes long; a thread takes turns
        return await asyncio.to_thread(_result, header, told)
    return _result(header, told)


def _result(header: frames.Header, body: bytes) -> ExecResult:
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
