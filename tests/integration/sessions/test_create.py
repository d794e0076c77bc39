"""Creating: what fails is told and cleaned up, what is repeated is the same, what is cut off is consistent."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from holdfast.callers.types import ROOT
from holdfast.drivers.base import ImageRoot
from holdfast.drivers.fake.faults import Moment
from holdfast.errors import (
    BadInput,
    DriverConflict,
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
from holdfast.records.sessions import SessionChange
from holdfast.sessions.session import Session
from holdfast.sessions.types import CreateRequest
from holdfast.store.database.database import Work
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def test_a_session_is_made_used_and_destroyed(host: FakeHost) -> None:
    async with host.daemon() as service:
        view = await service.create(CreateRequest(metadata={"a": "b"}), idempotency_key=None, caller=ROOT)
        assert view.status is Status.ACTIVE
        assert (view.metadata, view.reason, view.error) == ({"a": "b"}, None, None)
        assert (await run(service, view.id, "echo hello")).stdout == b"hello\n"
        await service.destroy(view.id)
        await service.destroy(view.id)
        gone = await service.get(view.id)
        assert (gone.status, gone.reason) == (Status.DESTROYED, Reason.REQUESTED)
    await host.assert_clean()


@pytest.mark.parametrize(
    "error",
    [DriverTransient("the disk is slow"), DriverQuota("no more"), RuntimeUnavailable("not today")],
    ids=lambda error: error.code,
)
@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_a_driver_that_fails(host: FakeHost, error: HoldfastError, moment: Moment) -> None:
    """The caller gets the driver's own error; the row tells it too; nothing is left."""
    async with host.daemon() as service:
        host.driver.inject("create", error=error, moment=moment)
        with pytest.raises(type(error), match=error.message):
            await new(service)
        [row] = await host.rows()
        assert (row.status, row.reason, row.error) == (Status.DESTROYED, Reason.CREATE_FAILED, error.message)
        with pytest.raises(SessionGone):
            await run(service, row.id, "true")
        assert (await run(service, await new(service), "echo next")).stdout == b"next\n"
    assert len(host.world.sandboxes) == 1


@pytest.mark.parametrize("trouble", [DriverTransient("busy"), RuntimeUnavailable("gone")], ids=lambda error: error.code)
async def test_clean_up_that_fails_is_tried_again(host: FakeHost, trouble: HoldfastError) -> None:
    """The first error is the one that is told; the rest is removed on a later tick."""
    async with host.daemon() as service:
        host.driver.inject("create", error=DriverTransient("first trouble"), moment="middle")
        host.driver.inject("destroy", error=trouble, times=2)
        with pytest.raises(DriverTransient, match="first trouble"):
            await new(service)
        [row] = await host.rows()
        assert (row.status, row.reason) == (Status.DESTROYING, Reason.CREATE_FAILED)
        assert row.id in host.world.sandboxes
        await tick(service)
        assert await host.is_in(row.id, Status.DESTROYING)
        await tick(service)
        row = await host.row(row.id)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.CREATE_FAILED)
        await host.assert_clean()


async def test_a_runner_that_is_not_on_the_line(host: FakeHost) -> None:
    """The sandbox is there and silent: after a while it counts as failed and is removed."""
    settings = dataclasses.replace(DEFAULTS, connect_seconds=0.2)
    async with host.daemon(settings) as service:
        host.driver.inject("create", hang=True, moment="after")

        async def strike() -> None:
            await until(
                lambda: any(one.runner is not None for one in host.world.sandboxes.values()), "the sandbox is made"
            )
            [session_id] = host.world.sandboxes
            await host.driver.kill(session_id)
            link = service._context.hub.get(session_id)
            assert link is not None
            await until(lambda: not link.connected, "it has hung up")
            host.driver.release("create")

        async with asyncio.TaskGroup() as group:
            group.create_task(strike())
            with pytest.raises(SandboxLost):
                await new(service)
        [row] = await host.rows()
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.CREATE_FAILED)
        await host.assert_clean()


async def test_one_look_at_the_image_and_four_writes_of_the_row(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Insert, lease, started, release."""
    done: list[str] = []
    database, resolve = host.store._database, host.images.resolve
    write = database.write

    async def count_write(work: Work[object]) -> object:
        done.append("write")
        return await write(work)

    async def count_resolve(name: str) -> ImageRoot:
        done.append("resolve")
        return await resolve(name)

    async with host.daemon() as service:
        monkeypatch.setattr(database, "write", count_write)
        monkeypatch.setattr(host.images, "resolve", count_resolve)
        await new(service)
        assert sorted(done) == ["resolve", *4 * ["write"]]


async def test_a_sandbox_that_dies_as_soon_as_it_is_made(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runner hangs up before the session counts as active: found out all the same, without a tick."""
    async with host.daemon() as service:
        original = Session.step

        async def die_first(
            session: Session, event: Event, values: SessionChange | None = None, notes: Sequence[NewEvent] = ()
        ) -> None:
            if event is Event.STARTED:
                await host.driver.kill(session.id)
                await until(lambda: not session.link.connected, "it has hung up")
            await original(session, event, values, notes)

        monkeypatch.setattr(Session, "step", die_first)  # the moment that is tested
        session_id = await new(service)
        await until(lambda: host.is_in(session_id, Status.ERROR), "the crash is noticed")


async def test_bad_wishes_make_no_row(host: FakeHost) -> None:
    async with host.daemon() as service:
        with pytest.raises(UnknownImage):
            await service.create(CreateRequest(image="missing"), idempotency_key="k", caller=ROOT)
        with pytest.raises(BadInput):
            await service.create(CreateRequest(ttl_seconds=10_001), idempotency_key="k", caller=ROOT)
        with pytest.raises(BadInput):
            await service.create(CreateRequest(memory_mb=1), idempotency_key="k", caller=ROOT)
        assert await host.rows() == []
        assert host.count("create") == 0
        await new(service, "k")


async def test_callers_with_one_key_share_one_attempt(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        callers = [asyncio.create_task(new(service, "one")) for _ in range(5)]
        await until(lambda: host.count("create") == 1, "the create is under way")
        callers.append(asyncio.create_task(new(service, "one")))
        await linger()
        host.driver.release("create")
        ids = await asyncio.gather(*callers)
        assert len(set(ids)) == 1
        assert host.count("create") == 1
        assert await new(service, "one") == ids[0]
        assert await new(service, "two") != ids[0]


async def test_callers_with_one_key_all_hear_of_the_failure(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", hang=True, error=DriverTransient("no luck"))
        callers = [asyncio.create_task(new(service, "one")) for _ in range(3)]
        await until(lambda: host.count("create") == 1, "the create is under way")
        host.driver.release("create")
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert all(isinstance(one, DriverTransient | Unavailable) and "no luck" in str(one) for one in outcomes), (
            outcomes
        )
        with pytest.raises(Unavailable, match="no luck"):
            await new(service, "one")
        assert host.count("create") == 1


async def test_one_key_for_another_wish(host: FakeHost) -> None:
    async with host.daemon() as service:
        await new(service, "one")
        with pytest.raises(IdempotencyMismatch):
            await new(service, "one", ttl=7)
        assert len(await host.rows()) == 1


async def test_too_many(host: FakeHost) -> None:
    async with host.daemon(dataclasses.replace(DEFAULTS, max_sessions=2)) as service:
        first = await new(service, "first")
        await new(service)
        with pytest.raises(TooManySessions):
            await new(service)
        assert await new(service, "first") == first, "a session that is there is given out, however many there are"
        await service.destroy(first)
        await new(service)


async def test_a_caller_that_goes_away_does_not_stop_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service, "one"))
        await until(lambda: host.count("create") == 1, "the create is under way")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        host.driver.release("create")
        session_id = await new(service, "one")
        assert host.count("create") == 1
        assert (await run(service, session_id, "echo here")).stdout == b"here\n"


async def test_exec_waits_for_a_create_that_is_under_way(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: host.count("create") == 1, "the create is under way")
        [row] = await host.rows()
        waiting = asyncio.create_task(run(service, row.id, "echo at last"))
        await linger()
        assert not waiting.done()
        host.driver.release("create")
        assert (await waiting).stdout == b"at last\n"
        await caller


async def test_destroy_during_create(host: FakeHost) -> None:
    """It waits for the create instead of racing it; afterwards all is gone."""
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: host.count("create") == 1, "the create is under way")
        [row] = await host.rows()
        ending = asyncio.create_task(service.destroy(row.id))
        await linger()
        host.driver.release("create")
        await ending
        await asyncio.gather(caller, return_exceptions=True)
        assert await host.is_in(row.id, Status.DESTROYED)
        await host.assert_clean()


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_the_daemon_ends_in_the_middle_and_the_next_one_finishes(host: FakeHost, moment: Moment) -> None:
    service = host.make_service()
    async with service.running():
        host.driver.inject("create", hang=True, moment=moment)
        caller = asyncio.create_task(new(service, "one"))
        await until(lambda: host.count("create") == 1, "the create is under way")
        for task in service._context.operations._tasks.values():
            task.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    async with host.daemon() as service:
        session_id = await new(service, "one")
        assert await host.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo finished")).stdout == b"finished\n"
        assert len(await host.rows()) == len(host.world.sandboxes) == 1


async def test_what_an_earlier_daemon_had_begun_comes_first(host: FakeHost) -> None:
    """There is no sandbox when it is looked for, and one that runs when it is made."""
    async with host.daemon() as service:
        host.driver.inject("create", error=DriverConflict("it is running already"), moment="after")
        session_id = await new(service)
        assert (await run(service, session_id, "echo here")).stdout == b"here\n"
        assert host.count("create") == 1


async def test_the_key_of_a_create_that_nobody_has_finished_yet(host: FakeHost) -> None:
    """At start the driver could not be asked, so the half-done create still waits: the same key finishes it."""
    service = host.make_service()
    await host.add_row(
        Status.CREATING,
        "ses_half",
        service,
        idempotency_key="one",
        idempotency_hash=(await service._planning.session(CreateRequest(), "one", ROOT.owner)).record.idempotency_hash,
    )
    host.driver.inject("list", error=DriverTransient("blind"))
    async with service.running():
        view = await service.create(CreateRequest(), idempotency_key="one", caller=ROOT)
        assert (view.id, view.status) == ("ses_half", Status.ACTIVE)


async def test_a_tick_during_create_changes_nothing(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: host.count("create") == 1, "the create is under way")
        await service._housekeeping.tick()
        host.driver.release("create")
        session_id = await caller
        assert host.count("create") == 1
        assert await host.is_in(session_id, Status.ACTIVE)


async def test_a_tick_with_an_old_memory_does_not_give_up_a_session(host: FakeHost) -> None:
    """The reconciler read the row as ``creating``; by the time it acts the session is active, and a look-up fails."""
    async with host.daemon() as service:
        host.driver.inject("create", hang=True)
        host.driver.inject("list", hang=True)
        caller = asyncio.create_task(new(service))
        await until(lambda: host.count("create") == 1, "the create is under way")
        ticking = asyncio.create_task(tick(service))
        await until(lambda: host.count("list") == 2, "the tick has read the rows")
        host.driver.release("create")
        session_id = await caller
        host.driver.inject("inspect", error=DriverTransient("blind"), times=None)
        host.driver.release("list")
        await ticking
        assert await host.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo alive")).stdout == b"alive\n"
