"""Sessions whose sandbox has died, brought back from their files: only on request, and never half."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.callers.types import ROOT
from holdfast.drivers.fake.runner import FakeRunner
from holdfast.errors import DriverTransient, SandboxLost, WrongState
from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session
from integration.sessions.copies.test_snapshots import read, write
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def dead(host: FakeHost, service: SessionService) -> str:
    session_id = await new(service)
    await write(service, session_id, "/workspace/a", b"x")
    await host.driver.kill(session_id)
    await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead")
    return session_id


async def test_only_on_request(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await dead(host, service)
        await tick(service)
        with pytest.raises(WrongState, match="restore"):
            await run(service, session_id, "echo hi")
        with pytest.raises(WrongState, match="restore"):
            await service.wake(session_id)
        (view, how), (again, _) = await asyncio.gather(service.revive(session_id), service.revive(session_id))
        assert (view.status, view.reason, view.error, view.paused_as) == (Status.ACTIVE, None, None, None)
        assert (how, again.id) == (PausedAs.FILES, session_id)
        assert await read(service, session_id, "/workspace/a") == b"x"
        assert (await run(service, session_id, "echo hi")).stdout == b"hi\n"
        assert (await service.revive(session_id))[1] is None  # it lives


async def test_one_that_died_frozen(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.pause(session_id, PausedAs.FROZEN)
        await host.driver.kill(session_id)
        await tick(service)
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead")
        await service.revive(session_id)
        assert (await run(service, session_id, "echo hi")).stdout == b"hi\n"
    assert list((host.root / "asleep").iterdir()) == []


async def test_what_fails_is_as_dead_as_before(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await dead(host, service)
        host.driver.inject("start", error=DriverTransient("not today"))
        with pytest.raises(DriverTransient):
            await service.revive(session_id)
        row = await host.row(session_id)
        assert (row.status, row.reason, row.paused_as) == (Status.ERROR, Reason.CRASHED, None)
        assert "not today" in (row.error or "")
        await service.revive(session_id)
        assert await read(service, session_id, "/workspace/a") == b"x"


async def test_one_that_dies_as_it_comes_back_is_found_dead_without_a_tick(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.daemon() as service:
        session_id = await dead(host, service)
        real = service._sleep._awake

        async def dying(session: Session) -> None:
            await host.driver.kill(session_id)
            await linger(0.2)  # whoever looks finds it neither there nor gone
            await real(session)

        monkeypatch.setattr(service._sleep, "_awake", dying)
        await service.revive(session_id)
        monkeypatch.undo()
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead again")
        await service.revive(session_id)
        assert await read(service, session_id, "/workspace/a") == b"x"


async def test_one_that_dies_again_while_its_first_death_is_looked_into_is_found_dead_without_a_tick(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        real = service._housekeeping._found_dead

        async def slow(id: str) -> bool:
            found = await real(id)
            monkeypatch.undo()
            await service.revive(id)
            await host.driver.kill(id)
            await linger(0.2)  # its link is cut
            return found

        monkeypatch.setattr(service._housekeeping, "_found_dead", slow)
        await host.driver.kill(session_id)
        await until(lambda: host.driver.calls.count(("start", session_id)) == 1, "brought back once")
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead again")


async def test_one_that_was_started_and_never_spoke_is_started_anew(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mute(_runner: FakeRunner) -> None:
        await asyncio.Event().wait()

    async with host.daemon(replace(DEFAULTS, connect_seconds=0.5)) as service:
        session_id = await dead(host, service)
        with monkeypatch.context() as patch:
            patch.setattr(FakeRunner, "_dial_for_ever", mute)
            with pytest.raises(SandboxLost):
                await service.revive(session_id)
        assert (await host.row(session_id)).status == Status.ERROR
        await service.revive(session_id)
        assert await read(service, session_id, "/workspace/a") == b"x"


async def test_nothing_left_to_revive(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await dead(host, service)
        del host.world.sandboxes[session_id]
        with pytest.raises(WrongState, match="cannot be brought back"):
            await service.revive(session_id)
        row = await host.row(session_id)
        assert (row.status, row.lease_owner) == (Status.ERROR, None)
        await service.destroy(session_id)
        await host.assert_clean()


@pytest.mark.parametrize("started", [False, True])
async def test_one_that_was_cut_off_is_finished(host: FakeHost, started: bool) -> None:
    async with host.daemon() as service:
        session_id = await dead(host, service)
    if started:
        await host.driver.start(host.driver.handle_for(session_id))
    await host.store.change(
        session_id,
        statuses=[Status.ERROR],
        generation=None,
        now=host.clock(),
        values={"status": Status.RESUMING, "paused_as": PausedAs.FILES},
    )
    async with host.daemon() as service:
        await until(lambda: host.is_in(session_id, Status.ACTIVE), "it is back")
        assert (await service.get(session_id)).reason is None
        assert await read(service, session_id, "/workspace/a") == b"x"
        assert (await service.list(status=None, limit=9, cursor=None, caller=ROOT))[0][0].id == session_id
