"""Output that is followed while it is written: how soon it comes, how fast, and what a slow reader costs the daemon."""

import asyncio
import contextlib
import shlex
import subprocess
import sys
import time

from bench import daemon, memory
from bench.compare.oci_runtime import OciRuntime
from bench.daemon import BenchError, Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from bench.sessions import stream_text
from holdfast.sdk import ExecStream, Session

NAME = "stream"
FIRST_BYTE = Target(5.0)
RATE = Target(80.0, at_least=True)
GROWTH = Target(20.0)
SIZE_MB = 200
SLOW_MB_PER_SECOND = 5.0
PIPE_READ = 1 << 18


async def measure(plan: Plan) -> list[Figure]:
    return [await _first_byte(plan), await _rate(plan), await _slow_reader(plan)]


# -- how soon ----------------------------------------------------------------------------------------------------------


def _clock(prints: int) -> str:
    """A program that prints its own clock, now and then. It is the same clock in a sandbox and on the host."""
    return f"import os, time\nfor _ in range({prints}):\n time.sleep(0.02); os.write(1, b'%d\\n' % time.monotonic_ns())"


class _Ages:
    """How old each printed clock is when its line is complete here."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._rest = b""

    def add(self, data: bytes) -> None:
        now = time.monotonic_ns()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.samples.add((now - int(line)) / 1e6)


async def _first_byte(plan: Plan) -> Figure:
    """In turns: the program in the sandbox, followed by the SDK; the same on the host, through a pipe."""
    rounds, prints = plan.count(12, 2), plan.count(50, 10)
    followed, piped = _Ages(), _Ages()
    plan.say(f"{rounds} x ({prints} lines from a sandbox, as many through a pipe)")
    async with daemon.running() as running, running.client() as client, client.create_session() as session:
        for _ in range(rounds):
            stream = session.exec_stream(f"python3 -c {shlex.quote(_clock(prints))}")
            async for chunk in stream:
                followed.add(chunk.data)
            await _read_pipe(_clock(prints), piped)
    if not len(followed.samples) == len(piped.samples) == rounds * prints:
        raise BenchError(f"{len(followed.samples)} and {len(piped.samples)} lines came, of {rounds * prints}")
    reference = Reference("through a pipe on the host", piped.samples)
    return Figure(NAME, "printed in a sandbox → yielded by the SDK", "ms", followed.samples, FIRST_BYTE, reference)


async def _read_pipe(program: str, ages: _Ages) -> None:
    """By the same event loop that follows the sandbox."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        while data := await process.stdout.read(PIPE_READ):
            ages.add(data)
    except BaseException:
        process.kill()
        raise
    finally:
        await process.wait()


# -- how fast ----------------------------------------------------------------------------------------------------------


async def _rate(plan: Plan) -> Figure:
    """In turns: through the SDK, and by the runtime's own exec in a container like it, into a pipe."""
    rounds, size_mb = plan.count(8, 1), plan.count(SIZE_MB, 20)
    followed, piped = Samples(more_is_better=True), Samples(more_is_better=True)
    runtime = await OciRuntime.find()
    plan.say(f"{rounds} x ({size_mb} MB of text by the SDK, as much by {runtime.name} exec)")
    async with (
        daemon.running() as running,
        running.client() as client,
        client.create_session() as session,
        runtime.beside(running, session.id) as container,
    ):
        argv = [*container.argv, "/bin/bash", "-c", stream_text.command(size_mb)]
        for _ in range(rounds):
            followed.add(size_mb / await _seconds_to_follow(session, size_mb))
            piped.add(size_mb / await asyncio.to_thread(_seconds_to_pipe, argv, size_mb))
    reference = Reference(f"{runtime.name} exec, into a pipe", piped)
    return Figure(NAME, f"{size_mb} MB of text", "MB/s", followed, RATE, reference)


async def _seconds_to_follow(session: Session, size_mb: int) -> float:
    """From the call to the end of the command."""
    received = stream_text.Received()
    started = time.perf_counter()
    async with contextlib.aclosing(session.exec_stream(stream_text.command(size_mb))) as stream:
        async for chunk in stream:
            received.add(chunk)
        took = time.perf_counter() - started
    received.check_end(size_mb, stream.result)
    return took


def _seconds_to_pipe(argv: list[str], size_mb: int) -> float:
    """From its start to its end. Blocks."""
    started = time.perf_counter()
    size = 0
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while data := process.stdout.read(PIPE_READ):
            size += len(data)
    took = time.perf_counter() - started
    if (size, process.returncode) != (size_mb << 20, 0):
        raise BenchError(f"{' '.join(argv)} wrote {size} bytes and ended with {process.returncode}")
    return took


# -- and slowly --------------------------------------------------------------------------------------------------------


async def _slow_reader(plan: Plan) -> Figure:
    """Each time with a daemon of its own: one that had much to carry before would have room left from it."""
    rounds, seconds = plan.count(3, 1), plan.count(6, 1)
    growth = Samples()
    plan.say(f"{rounds} x ({seconds} s of {SIZE_MB} MB of text, read at {SLOW_MB_PER_SECOND:.0f} MB/s)")
    for _ in range(rounds):
        async with daemon.running() as running, running.client() as client, client.create_session() as session:
            await session.exec_stream("echo").wait()  # the first stream of all loads what streams need
            growth.add(await _mb_grown(running, session, seconds))
    return Figure(NAME, f"daemon's RSS growth, read at {SLOW_MB_PER_SECOND:.0f} MB/s", "MB", growth, GROWTH)


async def _mb_grown(running: Daemon, session: Session, seconds: float) -> float:
    """By how much, at most, while the command is kept waiting; it must not have got rid of its output by then."""
    before = memory.rss_mb(running.pid)
    memory.forget_peak_rss(running.pid)
    async with contextlib.aclosing(session.exec_stream(stream_text.command(SIZE_MB))) as stream:
        await _read_slowly(stream, seconds)
        peak = memory.peak_rss_mb(running.pid)  # before the cancel, whose answer carries all output that is kept
        if not (await stream.cancel()).cancelled:
            raise BenchError(f"a command of {SIZE_MB} MB has ended although its output was read slowly")
    return peak - before


async def _read_slowly(stream: ExecStream, seconds: float) -> None:
    received = stream_text.Received()
    started = time.perf_counter()
    async for chunk in stream:
        received.add(chunk)
        due = received.size / (SLOW_MB_PER_SECOND * (1 << 20))
        if due >= seconds:
            return
        await asyncio.sleep(max(0.0, started + due - time.perf_counter()))
