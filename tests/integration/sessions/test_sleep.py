"""Sleep and wake with a driver that fails on demand: a step that fails goes back, one that was cut off is finished."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.drivers.base import Handle, SandboxInfo, SandboxState
from holdfast.drivers.fake.driver import FakeDriver
from holdfast.errors import Conflict, DriverTransient, SessionGone, WrongState
from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.records.sessions import SessionChange
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import ExecRequest
from support.fake_host import FakeHost, new, until

pytestmark = pytest.mark.anyio

HOW = pytest.mark.parametrize("how", list(PausedAs))


async def say(service: SessionService, session_id: str, shell: str = "main") -> bytes:
    request = ExecRequest("echo hi", shell=shell)
    return (await service.exec(session_id, request, idempotency_key=None)).stdout


@HOW
async def test_asleep_and_awake(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        view = await service.pause(session_id, how)
        assert (view.status, view.paused_as) == (Status.PAUSED, how)
        assert (await service.pause(session_id, how)).status is Status.PAUSED
        woken, slept_as = await service.wake(session_id)
        assert (woken.status, woken.paused_as, slept_as) == (Status.ACTIVE, None, how)
        assert (await service.wake(session_id))[1] is None
        assert await say(service, session_id) == b"hi\n"


async def test_frozen_can_be_stopped(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, PausedAs.FROZEN)
        assert (await service.pause(session_id, PausedAs.FILES)).paused_as == PausedAs.FILES
        assert (await service.pause(session_id, PausedAs.FROZEN)).paused_as == PausedAs.FILES  # deeper already
        assert await say(service, session_id) == b"hi\n"


@HOW
async def test_many_callers_share_one_wake_up(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, how)
        answers = await asyncio.gather(*(say(service, session_id, f"s{n}") for n in range(12)))
        assert set(answers) == {b"hi\n"}
        verb = "resume" if how is PausedAs.FROZEN else "start"
        assert [call for call in host.driver.calls if call[0] == verb] == [(verb, session_id)]


@pytest.mark.parametrize(
    ("how", "verb"), [(PausedAs.FROZEN, "pause"), (PausedAs.MEMORY, "checkpoint"), (PausedAs.FILES, "stop")]
)
async def test_who_cannot_be_put_to_sleep_stays_awake(host: FakeHost, how: PausedAs, verb: str) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject(verb, error=DriverTransient("not now"))
        with pytest.raises(DriverTransient, match="not now"):
            await service.pause(session_id, how)
        row = await host.row(session_id)
        assert (row.status, row.paused_as, row.lease_owner) == (Status.ACTIVE, None, None)
        assert await say(service, session_id) == b"hi\n"


@pytest.mark.parametrize(
    ("how", "verb"), [(PausedAs.FROZEN, "resume"), (PausedAs.MEMORY, "start"), (PausedAs.FILES, "start")]
)
async def test_who_cannot_be_woken_sleeps_on(host: FakeHost, how: PausedAs, verb: str) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, how)
        host.driver.inject(verb, error=DriverTransient("not now"))
        with pytest.raises(DriverTransient, match="not now"):
            await say(service, session_id)
        row = await host.row(session_id)
        assert (row.status, row.paused_as, row.lease_owner) == (Status.PAUSED, how, None)
        assert row.error is not None and row.error.startswith("wake: not now")
        assert await say(service, session_id) == b"hi\n"
        assert (await host.row(session_id)).error is None


@HOW
async def test_who_is_in_use_is_left_alone(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        running = asyncio.create_task(service.exec(session_id, ExecRequest("sleep 0.3"), idempotency_key=None))
        live = service._sessions.live(session_id)
        assert live is not None
        await until(lambda: live.users > 0, "it is in use")
        with pytest.raises(Conflict, match="in use"):
            await service.pause(session_id, how)
        assert (await running).exit_code == 0


@HOW
async def test_another_daemon_finds_it_asleep_and_wakes_it(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, how)
    async with host.daemon() as service:
        assert (await service.get(session_id)).paused_as == how
        assert await say(service, session_id) == b"hi\n"


@pytest.mark.parametrize("status", [Status.PAUSING, Status.RESUMING])
@pytest.mark.parametrize("done", [False, True])
@HOW
async def test_a_step_that_was_cut_off_is_finished(host: FakeHost, how: PausedAs, status: Status, done: bool) -> None:
    """The daemon died before the driver did it, or after."""
    async with host.daemon() as service:
        session_id = await new(service)
        if status is Status.RESUMING or done:
            await service.pause(session_id, how)
    if status is Status.RESUMING and done:
        rouse = host.driver.resume if how is PausedAs.FROZEN else host.driver.start
        await rouse(host.driver.handle_for(session_id))
    await host.store.change(
        session_id,
        statuses=list(Status),
        generation=None,
        now=host.clock(),
        values={"status": status, "paused_as": how},
    )
    async with host.daemon() as service:

        async def settled() -> bool:
            row = await host.row(session_id)
            return row.status in (Status.ACTIVE, Status.PAUSED) and row.lease_owner is None

        await until(settled, "it is awake or asleep, and nobody is at it any more")
        row = await host.row(session_id)
        assert (row.status, row.lease_owner) == (
            Status.PAUSED if status is Status.PAUSING and done else Status.ACTIVE,
            None,
        )
        assert await say(service, session_id) == b"hi\n"


async def test_memory_that_was_complete_just_after_its_sandbox_was_seen_running(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon died during a checkpoint, which ended while the next one looked: it is asleep, and not awake."""
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, PausedAs.MEMORY)
    values: SessionChange = {"status": Status.PAUSING, "paused_as": PausedAs.MEMORY}
    await host.store.change(session_id, statuses=list(Status), generation=None, now=host.clock(), values=values)
    listed = FakeDriver.list

    async def seen_too_early(driver: FakeDriver) -> list[SandboxInfo]:
        return [replace(info, state=SandboxState.RUNNING) for info in await listed(driver)]

    monkeypatch.setattr(FakeDriver, "list", seen_too_early)
    async with host.daemon() as service:

        async def asleep() -> bool:
            row = await host.row(session_id)
            return (row.status, row.paused_as, row.lease_owner) == (Status.PAUSED, PausedAs.MEMORY, None)

        await until(asleep, "it is asleep")
        assert await say(service, session_id) == b"hi\n"


async def test_memory_that_a_dead_daemon_has_begun_to_bring_back_is_waited_for(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first it is stopped, with somebody at it; then it runs. Started once more it would have been ended."""
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, PausedAs.MEMORY)
    await host.driver.start(host.driver.handle_for(session_id))
    values: SessionChange = {"status": Status.RESUMING, "paused_as": PausedAs.MEMORY}
    await host.store.change(session_id, statuses=list(Status), generation=None, now=host.clock(), values=values)
    really, looks = FakeDriver.inspect, 3

    async def seen_under_way(driver: FakeDriver, handle: Handle) -> SandboxInfo:
        nonlocal looks
        looks -= 1
        info = await really(driver, handle)
        return info if looks < 0 else replace(info, state=SandboxState.STOPPED, busy=True)

    monkeypatch.setattr(FakeDriver, "inspect", seen_under_way)
    async with host.daemon() as service:
        await until(lambda: host.is_in(session_id, Status.ACTIVE), "it is awake")
        assert await say(service, session_id) == b"hi\n"
        assert (host.count("start"), host.count("stop")) == (0, 0)


async def test_who_dies_in_its_sleep_is_reported(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, PausedAs.FROZEN)
        await host.driver.kill(session_id)
        await service._housekeeping.reconcile()

        async def reported() -> bool:
            return (await host.row(session_id)).status == Status.ERROR

        await until(reported, "the crash is reported")
        assert (await host.row(session_id)).reason == Reason.CRASHED
        with pytest.raises(WrongState, match="crashed"):
            await say(service, session_id)


@HOW
async def test_destroyed_in_its_sleep(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, how)
        await service.destroy(session_id)
        with pytest.raises(SessionGone):
            await service.wake(session_id)
        await host.assert_clean()
    assert list((host.root / "asleep").glob("*")) == []
