"""The wall clock is set while the daemon runs: nothing is destroyed, put to sleep or removed because of that."""

import pytest

from holdfast.callers.types import ROOT
from holdfast.records.machine import PausedAs, Status
from holdfast.records.spec import SleepPolicy
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from holdfast.sessions.watch.clock import DOUBT_SECONDS, ClockWatch
from support.fake_host import Clock, FakeHost, new, run, tick

pytestmark = pytest.mark.anyio

HOUR, DAY = 3600.0, 86400.0
TTL = 1800


class Times:
    """Both clocks of a machine."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host
        self.steady = Clock(1000.0)

    def pass_(self, seconds: float) -> None:
        self._host.clock.now += seconds
        self.steady.now += seconds

    def set(self, seconds: float) -> None:
        self._host.clock.now += seconds


@pytest.fixture
def times(host: FakeHost) -> Times:
    times = Times(host)
    host.steady = times.steady
    return times


async def left(host: FakeHost, service: SessionService, session_id: str) -> float:
    view = await service.get(session_id)
    assert (await host.row(session_id)).expires_at == pytest.approx(view.expires_at)
    return view.expires_at - host.clock.now


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 8 * DAY, -8 * DAY, 50 * 365 * DAY], ids=str)
async def test_sessions_keep_the_time_that_they_had_left(host: FakeHost, times: Times, jump: float) -> None:
    async with host.daemon() as service:
        session_id, asleep = await new(service, ttl=TTL), await new(service, ttl=TTL)
        await service.pause(asleep, PausedAs.FROZEN)
        times.pass_(600)
        await tick(service)
        for step in (jump, -jump, jump):
            times.set(step)
            await tick(service)
            assert await host.is_in(session_id, Status.ACTIVE)
            assert await host.is_in(asleep, Status.PAUSED)
            assert await left(host, service, session_id) == pytest.approx(TTL - 600)
            assert await left(host, service, asleep) == pytest.approx(TTL - 600)
        times.pass_(TTL - 599)
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYED), "time itself goes on"
        assert await host.is_in(asleep, Status.DESTROYED)


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY], ids=str)
async def test_what_is_used_between_a_jump_and_the_look_at_the_clock(host: FakeHost, times: Times, jump: float) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=TTL)
        times.set(jump)
        await run(service, session_id, "true")
        await service._housekeeping.save_activity()
        await tick(service)
        assert await left(host, service, session_id) == pytest.approx(TTL)


async def test_nobody_is_put_to_sleep_by_a_clock(host: FakeHost, times: Times) -> None:
    async with host.daemon() as service:
        asked = CreateRequest(ttl_seconds=TTL, sleep=SleepPolicy(pause_after_seconds=600.0))
        session_id = (await service.create(asked, idempotency_key=None, caller=ROOT)).id
        times.set(HOUR)
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE)
        times.pass_(601)
        await tick(service)
        assert await host.is_in(session_id, Status.PAUSED)


async def test_steps_of_seconds_are_believed(host: FakeHost, times: Times) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=TTL)
        times.set(5)
        await tick(service)
        assert await left(host, service, session_id) == pytest.approx(TTL - 5)
        assert not service.clock_is_doubtful


async def test_the_past_is_kept_while_the_clock_is_in_doubt(host: FakeHost, times: Times) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=TTL)
        await service.destroy(session_id)
        times.set(300 * DAY)
        await tick(service)
        assert (await host.row(session_id)).status == Status.DESTROYED, "the row is still there"
        times.pass_(DOUBT_SECONDS + 1)
        await tick(service)
        assert session_id not in [row.id for row in await host.rows()]


def test_without_a_steady_clock_the_wall_clock_is_believed() -> None:
    clock = Clock(1000.0)
    watch = ClockWatch(clock, None)
    clock.now += 9 * DAY
    look = watch.look()
    assert (look.now, look.jumped, watch.is_doubtful) == (clock.now, 0.0, False)
