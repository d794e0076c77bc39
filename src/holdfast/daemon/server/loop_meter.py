"""How long the event loop is held: by one callback, or by a thread that lets nobody else run.

A timer beats every 10 ms. What passes between two beats is the time in which nobody else had a turn, but on a machine
that is busy with other things most of it may be theirs. So two figures are kept: how late a beat is by the clock, and
how much processor time this process has used since the beat before, which other processes cannot add to. The second one
says how long our own work has held the loop, and is at most one interval too high.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import structlog
from prometheus_client import CollectorRegistry, Histogram

EVERY_SECONDS = 0.01
TOLD_SECONDS = 0.25
"""So long a hold is told in the log, once a minute at most."""
BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)

log = structlog.get_logger(__name__)


class LoopMeter:
    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock = clock
        self._processor = processor
        self._held = Histogram(
            "holdfast_loop_held_seconds",
            "Processor time that the daemon itself has used between two beats of the event loop",
            registry=registry,
            buckets=BUCKETS,
        )
        self._late = Histogram(
            "holdfast_loop_late_seconds",
            "How late beats of the event loop come by the clock, whoever has used the processor",
            registry=registry,
            buckets=BUCKETS,
        )
        self._at = self._used = 0.0
        self._told_at = -60.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.begin()
        task = asyncio.create_task(self._beat_for_ever())
        try:
            yield
        finally:
            task.cancel()

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            self.beat()

    def begin(self) -> None:
        self._at, self._used = self._clock(), self._processor()

    def beat(self) -> None:
        passed, used = self._clock() - self._at, self._processor() - self._used
        self.begin()
        held, late = min(passed, used), max(passed - EVERY_SECONDS, 0.0)
        self._held.observe(held)
        self._late.observe(late)
        if max(held, late) > TOLD_SECONDS and self._at - self._told_at >= 60:
            self._told_at = self._at
            log.warning("loop.held", held_ms=round(held * 1000), late_ms=round(late * 1000))
