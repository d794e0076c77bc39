"""What is held against the event loop, and what is not its fault."""

import asyncio

import pytest
import structlog
from prometheus_client import CollectorRegistry

from holdfast.daemon.server.loop_meter import EVERY_SECONDS, LoopMeter


class Clocks:
    """The one on the wall, and the processor's."""

    def __init__(self) -> None:
        self.wall = self.used = 100.0
        self.registry = CollectorRegistry()
        self.meter = LoopMeter(self.registry, clock=lambda: self.wall, processor=lambda: self.used)
        self.meter.begin()

    def beat_after(self, wall: float, used: float) -> None:
        self.wall += wall
        self.used += used
        self.meter.beat()

    def over_50_ms(self, name: str) -> float:
        return over_50_ms(self.registry, name)


def over_50_ms(registry: CollectorRegistry, name: str) -> float:
    total = registry.get_sample_value(f"holdfast_loop_{name}_seconds_count")
    within = registry.get_sample_value(f"holdfast_loop_{name}_seconds_bucket", {"le": "0.05"})
    assert total is not None and within is not None
    return total - within


def test_time_of_other_processes_is_late_and_not_held() -> None:
    clocks = Clocks()
    clocks.beat_after(EVERY_SECONDS, 0.001)
    clocks.beat_after(0.4, 0.03)
    assert (clocks.over_50_ms("held"), clocks.over_50_ms("late")) == (0, 1)


def test_work_in_threads_that_lets_the_loop_run_is_not_held() -> None:
    clocks = Clocks()
    clocks.beat_after(EVERY_SECONDS, 0.08)  # eight processors at once
    assert (clocks.over_50_ms("held"), clocks.over_50_ms("late")) == (0, 0)


def test_a_call_that_waits_without_working_is_late() -> None:
    clocks = Clocks()
    clocks.beat_after(0.2, 0.0)
    assert (clocks.over_50_ms("held"), clocks.over_50_ms("late")) == (0, 1)


def test_a_long_hold_is_told_once_a_minute() -> None:
    clocks = Clocks()
    with structlog.testing.capture_logs() as log:
        for passed in (0.1, 0.5, 0.5, 60.0):
            clocks.beat_after(passed, passed)
    told = [(line["held_ms"], line["late_ms"]) for line in log if line["event"] == "loop.held"]
    assert told == [(500, 490), (60_000, 59_990)]


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["the loop", "a thread"])
async def test_real_work_is_seen_wherever_it_is_done(where: str) -> None:
    registry = CollectorRegistry()
    async with LoopMeter(registry).running():
        await asyncio.sleep(EVERY_SECONDS * 3)
        if where == "the loop":
            work()
        else:
            await asyncio.to_thread(work)
        await asyncio.sleep(EVERY_SECONDS * 3)
    assert over_50_ms(registry, "held") >= 1


def work() -> None:
    """One call that keeps everybody else from running until it returns."""
    sum(range(20_000_000))
