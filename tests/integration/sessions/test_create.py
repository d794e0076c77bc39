"""Creating: what fails is told and cleaned up, what is repeated is the same, what is cut off is consistent."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from holdfast.callers.types import ROOT
from holdfast.drivers.fake.faults import Moment
from holdfast.errors import (
    BadInput,
    DriverQuota,
    DriverTransient,
    HoldfastError,
    IdempotencyMismatch,
    RuntimeUnavailable,
    SandboxLost,
    SessionGone,
    TooManySessions,
    Unavailable,
    UnknownImage,
)
from holdfast.records.events import NewEvent
from holdfast.records.machine import Event, Reason, Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.sessions.types import CreateRequest
from support.house import DEFAULTS, House, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def test_a_session_is_made_used_and_destroyed(house: House) -> None:
    async with house.daemon() as service:
        view = await service.create(CreateRequest(metadata={"a": "b"}), idempotency_key=None, caller=ROOT)
        assert view.status is Status.ACTIVE
        assert (view.metadata, view.reason, view.error) == ({"a": "b"}, None, None)
        assert (await run(service, view.id, "echo hello")).stdout == b"hello\n"
        await service.destroy(view.id)
        await service.destroy(view.id)
        gone = await service.get(view.id)
        assert (gone.status, gone.reason) == (Status.DESTROYED, Reason.REQUESTED)
    await house.assert_clean()


@pytest.mark.parametrize(
    "error",
    [DriverTransient("the disk is slow"), DriverQuota("no more"), RuntimeUnavailable("not today")],
    ids=lambda error: error.code,
)
@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_a_driver_that_fails(house: House, error: HoldfastError, moment: Moment) -> None:
    """The caller gets the driver's own error; the row tells it too; nothing is left."""
    async with house.daemon() as service:
        house.driver.inject("create", error=error, moment=moment)
        with pytest.raises(type(error), match=error.message):
            await new(service)
        [row] = await house.rows()
        assert (row.status, row.reason, row.error) == (Status.DESTROYED, Reason.CREATE_FAILED, error.message)
        with pytest.raises(SessionGone):
            await run(service, row.id, "true")
        assert (await run(service, await new(service), "echo next")).stdout == b"next\n"
    assert len(house.world.sandboxes) == 1


@pytest.mark.parametrize("trouble", [DriverTransient("busy"), RuntimeUnavailable("gone")], ids=lambda error: error.code)
async def test_clean_up_that_fails_is_tried_again(house: House, trouble: HoldfastError) -> None:
    """The first error is the one that is told; the rest is removed on a later tick."""
    async with house.daemon() as service:
        house.driver.inject("create", error=DriverTransient("first trouble"), moment="middle")
        house.driver.inject("destroy", error=trouble, times=2)
        with pytest.raises(DriverTransient, match="first trouble"):
            await new(service)
        [row] = await house.rows()
        assert (row.status, row.reason) == (Status.DESTROYING, Reason.CREATE_FAILED)
        assert row.id in house.world.sandboxes
        await tick(service)
        assert await house.is_in(row.id, Status.DESTROYING)
        await tick(service)
        row = await house.row(row.id)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.CREATE_FAILED)
        await house.assert_clean()


async def test_a_runner_that_is_not_on_the_line(house: House) -> None:
    """The sandbox is there and silent: after a while it counts as failed and is removed."""
    settings = dataclasses.replace(DEFAULTS, connect_seconds=0.2)
    async with house.daemon(settings) as service:
        house.driver.inject("create", hang=True, moment="after")

        async def strike() -> None:
            await until(
                lambda: any(one.runner is not None for one in house.world.sandboxes.values()), "the sandbox is made"
            )
            [session_id] = house.world.sandboxes
            await house.driver.kill(session_id)
            link = service._hub.get(session_id)
            assert link is not None
            await until(lambda: not link.connected, "it has hung up")
            house.driver.release("create")

        async with asyncio.TaskGroup() as group:
            group.create_task(strike())
            with pytest.raises(SandboxLost):
                await new(service)
        [row] = await house.rows()
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.CREATE_FAILED)
        await house.assert_clean()


async def test_a_sandbox_that_dies_as_soon_as_it_is_made(house: House) -> None:
    """Its runner hangs up before the session counts as active: found out all the same, without a tick."""
    async with house.daemon() as service:
        original = service._lifecycle._rows.change

        async def die_first(
            row: SessionRow, event: Event, values: SessionChange | None = None, notes: Sequence[NewEvent] = ()
        ) -> SessionRow:
            if event is Event.STARTED:
                await house.driver.kill(row.id)
                link = service._hub.get(row.id)
                assert link is not None
                await until(lambda: not link.connected, "it has hung up")
            return await original(row, event, values, notes)

        service._lifecycle._rows.change = die_first  # type: ignore[method-assign]  # the moment that is tested
        session_id = await new(service)
        await until(lambda: house.is_in(session_id, Status.ERROR), "the crash is noticed")


async def test_bad_wishes_make_no_row(house: House) -> None:
    async with house.daemon() as service:
        with pytest.raises(UnknownImage):
            await service.create(CreateRequest(image="missing"), idempotency_key="k", caller=ROOT)
        with pytest.raises(BadInput):
            await service.create(CreateRequest(ttl_seconds=10_001), idempotency_key="k", caller=ROOT)
        with pytest.raises(BadInput):
            await service.create(CreateRequest(memory_mb=1), idempotency_key="k", caller=ROOT)
        assert await house.rows() == []
        assert house.count("create") == 0
        await new(service, "k")


async def test_callers_with_one_key_share_one_attempt(house: House) -> None:
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        callers = [asyncio.create_task(new(service, "one")) for _ in range(5)]
        await until(lambda: house.count("create") == 1, "the create is under way")
        callers.append(asyncio.create_task(new(service, "one")))
        await linger()
        house.driver.release("create")
        ids = await asyncio.gather(*callers)
        assert len(set(ids)) == 1
        assert house.count("create") == 1
        assert await new(service, "one") == ids[0]
        assert await new(service, "two") != ids[0]


async def test_callers_with_one_key_all_hear_of_the_failure(house: House) -> None:
    async with house.daemon() as service:
        house.driver.inject("create", hang=True, error=DriverTransient("no luck"))
        callers = [asyncio.create_task(new(service, "one")) for _ in range(3)]
        await until(lambda: house.count("create") == 1, "the create is under way")
        house.driver.release("create")
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert all(isinstance(one, DriverTransient | Unavailable) and "no luck" in str(one) for one in outcomes), (
            outcomes
        )
        with pytest.raises(Unavailable, match="no luck"):
            await new(service, "one")
        assert house.count("create") == 1


async def test_one_key_for_another_wish(house: House) -> None:
    async with house.daemon() as service:
        await new(service, "one")
        with pytest.raises(IdempotencyMismatch):
            await new(service, "one", ttl=7)
        assert len(await house.rows()) == 1


async def test_too_many(house: House) -> None:
    async with house.daemon(dataclasses.replace(DEFAULTS, max_sessions=2)) as service:
        first = await new(service, "first")
        await new(service)
        with pytest.raises(TooManySessions):
            await new(service)
        assert await new(service, "first") == first, "a session that is there is given out, however many there are"
        await service.destroy(first)
        await new(service)


async def test_a_caller_that_goes_away_does_not_stop_it(house: House) -> None:
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service, "one"))
        await until(lambda: house.count("create") == 1, "the create is under way")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        house.driver.release("create")
        session_id = await new(service, "one")
        assert house.count("create") == 1
        assert (await run(service, session_id, "echo here")).stdout == b"here\n"


async def test_exec_waits_for_a_create_that_is_under_way(house: House) -> None:
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: house.count("create") == 1, "the create is under way")
        [row] = await house.rows()
        waiting = asyncio.create_task(run(service, row.id, "echo at last"))
        await linger()
        assert not waiting.done()
        house.driver.release("create")
        assert (await waiting).stdout == b"at last\n"
        await caller


async def test_destroy_during_create(house: House) -> None:
    """It waits for the create instead of racing it; afterwards all is gone."""
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: house.count("create") == 1, "the create is under way")
        [row] = await house.rows()
        ending = asyncio.create_task(service.destroy(row.id))
        await linger()
        house.driver.release("create")
        await ending
        await asyncio.gather(caller, return_exceptions=True)
        assert await house.is_in(row.id, Status.DESTROYED)
        await house.assert_clean()


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_the_daemon_ends_in_the_middle_and_the_next_one_finishes(house: House, moment: Moment) -> None:
    service = house.make_service()
    async with service.running():
        house.driver.inject("create", hang=True, moment=moment)
        caller = asyncio.create_task(new(service, "one"))
        await until(lambda: house.count("create") == 1, "the create is under way")
        for task in service._operations._tasks.values():
            task.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    async with house.daemon() as service:
        session_id = await new(service, "one")
        assert await house.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo finished")).stdout == b"finished\n"
        assert len(await house.rows()) == len(house.world.sandboxes) == 1


async def test_the_key_of_a_create_that_nobody_has_finished_yet(house: House) -> None:
    """At start the driver could not be asked, so the half-done create still waits: the same key finishes it."""
    service = house.make_service()
    await house.add_row(
        Status.CREATING,
        "ses_half",
        service,
        idempotency_key="one",
        idempotency_hash=(await service._planning.session(CreateRequest(), "one", ROOT.owner)).idempotency_hash,
    )
    house.driver.inject("list", error=DriverTransient("blind"))
    async with service.running():
        view = await service.create(CreateRequest(), idempotency_key="one", caller=ROOT)
        assert (view.id, view.status) == ("ses_half", Status.ACTIVE)


async def test_a_tick_during_create_changes_nothing(house: House) -> None:
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: house.count("create") == 1, "the create is under way")
        await service._tick()
        house.driver.release("create")
        session_id = await caller
        assert house.count("create") == 1
        assert await house.is_in(session_id, Status.ACTIVE)


async def test_a_tick_with_an_old_memory_does_not_give_up_a_session(house: House) -> None:
    """The reconciler read the row as ``creating``; by the time it acts the session is active, and a look-up fails."""
    async with house.daemon() as service:
        house.driver.inject("create", hang=True)
        house.driver.inject("list", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: house.count("create") == 1, "the create is under way")
        ticking = asyncio.create_task(tick(service))
        await until(lambda: house.count("list") == 2, "the tick has read the rows")
        house.driver.release("create")
        session_id = await caller
        house.driver.inject("inspect", error=DriverTransient("blind"), times=None)
        house.driver.release("list")
        await ticking
        assert await house.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo alive")).stdout == b"alive\n"
