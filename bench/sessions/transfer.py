"""1 GB into a sandbox and out of it again as a stream, and what that does to the daemon's memory."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from bench import daemon
from bench.compare import loopback
from bench.daemon import Daemon
from bench.figure import Figure, Reference, Target
from bench.memory import rss_mb
from bench.plan import Plan
from bench.samples import Samples
from holdfast.sdk import Limits, Session

T = TypeVar("T")

NAME = "transfer"
RATE = Target(150.0, at_least=True)
GROWTH = Target(32.0)
PATH = "/workspace/benchmark.bin"
PIECE = os.urandom(1 << 20)
LOOK_SECONDS = 0.02
SPARE_MB = 256


async def measure(plan: Plan) -> list[Figure]:
    """Each way once per round. What comes out is compared with what went in by its digest."""
    rounds, size_mb = plan.count(5, 1), plan.count(1024, 64)
    up, down, copy, growth = (
        Samples(more_is_better=True),
        Samples(more_is_better=True),
        Samples(more_is_better=True),
        Samples(),
    )
    plan.say(f"{rounds} x ({size_mb} MB up and down, one loopback copy of 64 MB)")
    async with daemon.running() as running, running.client() as client:
        limits = Limits(disk_mb=2 * size_mb + SPARE_MB)  # the old file stays until the new one is whole
        async with client.create_session(limits=limits) as session:
            await _round(session, 8)  # buffers and pools have their size now
            for _ in range(rounds):
                before = rss_mb(running.pid)
                highest, (seconds_up, seconds_down) = await _highest_rss(running, lambda: _round(session, size_mb))
                up.add(size_mb / seconds_up)
                down.add(size_mb / seconds_down)
                growth.add(max(highest - before, 0.0))
                copy.add(64 / await asyncio.to_thread(loopback.seconds_to_copy, PIECE * 64))
    reference = Reference("loopback TCP copy", copy)
    return [
        Figure(NAME, f"{size_mb} MB upload, SDK", "MB/s", up, RATE, reference),
        Figure(NAME, f"{size_mb} MB download, SDK", "MB/s", down, RATE, reference),
        Figure(NAME, "daemon's RSS meanwhile, growth", "MB", growth, GROWTH),
    ]


async def _round(session: Session, size_mb: int) -> tuple[float, float]:
    """The seconds for each way."""
    began = time.perf_counter()
    entry = await session.files.upload(_pieces(size_mb), PATH)
    sent = time.perf_counter()
    assert entry.size == size_mb << 20
    size, last = 0, b""
    async for piece in session.files.stream(PATH):
        size, last = size + len(piece), piece
    came = time.perf_counter()
    assert size == entry.size and PIECE.endswith(last[-1024:])
    digest = (await session.exec(f"sha256sum < {PATH}", timeout_ms=120_000)).check().stdout.split()[0]
    assert digest == await asyncio.to_thread(_digest, size_mb)
    return sent - began, came - sent


async def _pieces(size_mb: int) -> AsyncIterator[bytes]:
    for _ in range(size_mb):
        yield PIECE


def _digest(size_mb: int) -> str:
    digest = hashlib.sha256()
    for _ in range(size_mb):
        digest.update(PIECE)
    return digest.hexdigest()


async def _highest_rss(running: Daemon, work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """The daemon's memory at its highest while ``work`` went on."""
    working = asyncio.ensure_future(work())
    highest = 0.0
    while not working.done():
        highest = max(highest, rss_mb(running.pid))
        await asyncio.wait([working], timeout=LOOK_SECONDS)
    return highest, await working
