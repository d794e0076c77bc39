"""Destroying: from any state, as often as you like, and whatever fails on the way is tried again."""

import asyncio

import pytest

from holdfast.drivers.fake.faults import Moment
from holdfast.errors import DriverTransient, RuntimeUnavailable, SessionGone, SessionNotFound
from holdfast.records.machine import LIVE, Reason, Status
from support.fake_host import FakeHost, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio

ENDED = "holdfast_sessions_ended_total"


async def test_it_fails_then_works(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=DriverTransient("device busy"), times=2)
        with pytest.raises(DriverTransient, match="device busy"):
            await service.destroy(session_id)
        row = await host.row(session_id)
        assert (row.status, row.reason) == (Status.DESTROYING, Reason.REQUESTED)
        assert row.error is not None and "device busy" in row.error
        with pytest.raises(SessionGone):
            await run(service, session_id, "true")
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYING)
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYED)
        await host.assert_clean()


async def test_it_fails_and_is_asked_again(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=RuntimeUnavailable("not now"), moment="middle")
        with pytest.raises(RuntimeUnavailable):
            await service.destroy(session_id)
        await service.destroy(session_id)
        await host.assert_clean()


async def test_callers_at_once_share_one_attempt(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", hang=True)
        callers = [asyncio.create_task(service.destroy(session_id)) for _ in range(5)]
        await until(lambda: host.count("destroy") == 1, "the destroy is under way")
        host.driver.release("destroy")
        await asyncio.gather(*callers)
        assert host.count("destroy") == 1
        await host.assert_clean()


async def test_ticks_during_destroy_do_not_disturb_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", hang=True)
        caller = asyncio.create_task(service.destroy(session_id))
        await until(lambda: host.count("destroy") == 1, "the destroy is under way")
        await service._housekeeping.tick()
        await service._housekeeping.tick()
        host.driver.release("destroy")
        await caller
        assert await host.is_in(session_id, Status.DESTROYED)
        await tick(service)
        await host.assert_clean()


async def test_asked_while_the_tick_destroys_it(host: FakeHost) -> None:
    """The other way round: the reconciler finishes an old destroy, and somebody asks for it at the same time."""
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=DriverTransient("busy"))
        with pytest.raises(DriverTransient):
            await service.destroy(session_id)
        host.driver.inject("destroy", hang=True)
        await service._housekeeping.tick()
        await until(lambda: host.count("destroy") == 2, "the tick tries again")
        caller = asyncio.create_task(service.destroy(session_id))
        await linger()
        host.driver.release("destroy")
        await caller
        assert await host.is_in(session_id, Status.DESTROYED)
        await host.assert_clean()


async def test_asked_while_the_tick_fails_to_destroy_it(host: FakeHost) -> None:
    """Success is never claimed for what somebody else has failed to do."""
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=DriverTransient("busy"))
        with pytest.raises(DriverTransient):
            await service.destroy(session_id)
        host.driver.inject("destroy", hang=True, error=DriverTransient("busy again"))
        host.driver.inject("destroy", error=DriverTransient("busy for you too"))
        await service._housekeeping.tick()
        await until(lambda: host.count("destroy") == 2, "the tick tries again")
        caller = asyncio.create_task(service.destroy(session_id))
        await linger()
        host.driver._faults["destroy"][-2].released.set()
        with pytest.raises(DriverTransient):
            await caller
        await tick(service)
        await host.assert_clean()


@pytest.mark.parametrize("status", sorted(LIVE))
async def test_from_any_state_also_without_a_sandbox(host: FakeHost, status: Status) -> None:
    service = host.make_service()
    host.driver.inject("list", error=DriverTransient("blind"))
    await host.add_row(status, "ses_odd", service)
    async with service.running():
        await service.destroy("ses_odd")
        assert await host.is_in("ses_odd", Status.DESTROYED)
        await host.assert_clean()


async def test_what_never_was(host: FakeHost) -> None:
    async with host.daemon() as service:
        with pytest.raises(SessionNotFound):
            await service.destroy("ses_never")


async def test_it_ends_what_is_running(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        running = asyncio.create_task(run(service, session_id, "sleep 100"))
        await until(lambda: host.busy(session_id), "the command runs")
        await service.destroy(session_id)
        with pytest.raises(SessionGone):
            await running


async def test_a_caller_that_goes_away_does_not_stop_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", hang=True)
        caller = asyncio.create_task(service.destroy(session_id))
        await until(lambda: host.count("destroy") == 1, "the destroy is under way")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        host.driver.release("destroy")
        await until(lambda: host.is_in(session_id, Status.DESTROYED), "it is destroyed all the same")
        await host.assert_clean()


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_the_daemon_ends_in_the_middle_and_the_next_one_finishes(host: FakeHost, moment: Moment) -> None:
    service = host.make_service()
    async with service.running():
        session_id = await new(service)
        host.driver.inject("destroy", hang=True, moment=moment)
        caller = asyncio.create_task(service.destroy(session_id))
        await until(lambda: host.count("destroy") == 1, "the destroy is under way")
        for task in service._context.operations._tasks.values():
            task.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert await host.is_in(session_id, Status.DESTROYING)
    async with host.daemon():
        await until(lambda: host.is_in(session_id, Status.DESTROYED), "the next daemon finishes it, unasked")
        await host.assert_clean()


async def test_one_that_crashed_is_counted_once(host: FakeHost) -> None:
    async with host.daemon() as service:
        crashed, other = await new(service), await new(service)
        await host.driver.kill(crashed)
        await until(lambda: host.is_in(crashed, Status.ERROR), "it is dead")
        await service.destroy(crashed)
        await service.destroy(other)
        counts = [host.registry.get_sample_value(ENDED, {"reason": reason}) for reason in ("crashed", "requested")]
        assert counts == [1, 1]
