"""The reconciler's table, row by row; and that a look-up which fails changes nothing."""

import asyncio
import dataclasses

import pytest

from holdfast.drivers.base import Handle, SandboxInfo, SandboxState
from holdfast.errors import (
    DriverError,
    DriverTransient,
    DriverUnauthorized,
    RuntimeUnavailable,
    SandboxLost,
    SessionGone,
    WrongState,
)
from holdfast.records.machine import Reason, Status
from holdfast.sessions.service import SessionService
from support.fake_host import FakeHost, new, run, tick, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("sandbox", ["absent", "half made", "running", "stopped"])
async def test_creating(host: FakeHost, sandbox: str) -> None:
    """Whatever there is: the create is finished."""
    service = host.make_service()
    async with service.running():
        session_id = await new(service)
        if sandbox == "stopped":
            await host.driver.kill(session_id)
        elif sandbox == "absent":
            await host.driver.forget(session_id)
        elif sandbox == "half made":
            await host.driver.kill(session_id)
            host.world.sandboxes[session_id].runner = None
    await _force(host, session_id, Status.CREATING)
    async with host.daemon() as service:
        await until(lambda: host.is_in(session_id, Status.ACTIVE), "the create is finished")
        assert (await run(service, session_id, "echo up")).stdout == b"up\n"
        assert host.count("create") == (0 if sandbox == "running" else 1)
        assert len(host.world.sandboxes) == 1


async def test_creating_that_cannot_be_finished(host: FakeHost) -> None:
    service = host.make_service()
    await host.add_row(Status.CREATING, "ses_doomed", service)
    host.driver.inject("create", error=DriverTransient("never"), times=None, moment="middle")
    async with service.running():
        await until(lambda: host.is_in("ses_doomed", Status.DESTROYED), "it is given up")
        row = await host.row("ses_doomed")
        assert (row.reason, row.error) == (Reason.CREATE_FAILED, "never")
        await host.assert_clean()


async def test_active_and_running(host: FakeHost) -> None:
    """Adopted: the same sandbox, its files and its running command."""
    async with host.daemon() as service:
        session_id = await new(service)
        await service.write_file(session_id, "/workspace/f", b"kept", mode=None)
        running = asyncio.create_task(run(service, session_id, "sleep 0.3; echo survived", "key"))
        await until(lambda: host.busy(session_id), "the command runs")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    sandbox = host.world.sandboxes[session_id]
    async with host.daemon() as service:
        assert (await run(service, session_id, "sleep 0.3; echo survived", "key")).stdout == b"survived\n"
        assert (await service.read_file(session_id, "/workspace/f", max_bytes=None)) == (b"kept", False)
        assert host.world.sandboxes[session_id] is sandbox
        assert host.count("create") == host.count("destroy") == 0


@pytest.mark.parametrize("moment", ["at start", "on a tick"])
@pytest.mark.parametrize("sandbox", ["stopped", "absent"])
async def test_active_and_dead(host: FakeHost, sandbox: str, moment: str) -> None:
    """Reported as crashed, and never made anew."""
    service = host.make_service()
    async with service.running():
        session_id = await new(service)
        if moment == "on a tick":
            live = service._sessions.live(session_id)
            assert live is not None
            live.link.on_disconnect = None
            await _kill(host, session_id, sandbox)
            await tick(service)
            await _assert_crashed(host, service, session_id)
    if moment == "at start":
        await _kill(host, session_id, sandbox)
        async with host.daemon() as service:
            await _assert_crashed(host, service, session_id)


async def _kill(host: FakeHost, session_id: str, sandbox: str) -> None:
    await (host.driver.kill(session_id) if sandbox == "stopped" else host.driver.forget(session_id))


async def _assert_crashed(host: FakeHost, service: SessionService, session_id: str) -> None:
    view = await service.get(session_id)
    assert (view.status, view.reason) == (Status.ERROR, Reason.CRASHED)
    assert view.error
    with pytest.raises(WrongState, match="crashed"):
        await run(service, session_id, "true")
    for _ in range(2):
        await tick(service)
    assert await host.is_in(session_id, Status.ERROR)
    assert host.count("create") <= 1
    await service.destroy(session_id)
    await host.assert_clean()


@pytest.mark.parametrize("sandbox", ["running", "stopped", "absent"])
async def test_destroying(host: FakeHost, sandbox: str) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    if sandbox != "running":
        await _kill(host, session_id, sandbox)
    await _force(host, session_id, Status.DESTROYING)
    async with host.daemon():
        await until(lambda: host.is_in(session_id, Status.DESTROYED), "the destroy is finished")
        await host.assert_clean()


async def test_destroyed_with_a_sandbox(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    await _force(host, session_id, Status.DESTROYED)
    async with host.daemon():
        await host.assert_clean()


async def test_a_sandbox_without_a_row(host: FakeHost) -> None:
    async with host.daemon() as service:
        owned = await new(service)
        stray = await new(service)
    await _forget_row(host, stray)
    async with host.daemon() as service:
        assert list(host.world.sandboxes) == [owned]
        assert host.links() == [owned]
        assert (await run(service, owned, "echo alive")).stdout == b"alive\n"


async def test_a_stray_that_resists_is_tried_again(host: FakeHost) -> None:
    async with host.daemon() as service:
        stray = await new(service)
    await _forget_row(host, stray)
    service = host.make_service()
    host.driver.inject("destroy", error=DriverTransient("busy"))
    async with service.running():
        assert list(host.world.sandboxes) == [stray]
        await tick(service)
        await host.assert_clean()


async def test_error_is_left_alone(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    await _force(host, session_id, Status.ERROR)
    async with host.daemon() as service:
        await tick(service)
        assert await host.is_in(session_id, Status.ERROR)
        assert list(host.world.sandboxes) == [session_id], "its files are kept until it is destroyed"


@pytest.mark.parametrize(
    "error",
    [DriverTransient("blip"), DriverUnauthorized("who are you"), RuntimeUnavailable("no runtime"), DriverError("odd")],
    ids=lambda error: error.code,
)
async def test_a_list_that_fails_changes_nothing(host: FakeHost, error: DriverError) -> None:
    async with host.daemon() as service:
        active = await new(service)
        stray = await new(service)
        crashed = await new(service)
    await _forget_row(host, stray)
    await host.driver.forget(crashed)
    before = await host.rows()
    service = host.make_service()
    host.driver.inject("list", error=error, times=3)
    async with service.running():
        await tick(service)
        await tick(service)
        assert await host.rows() == before
        assert set(host.world.sandboxes) == {active, stray}
        assert host.count("destroy") == host.count("create") == 0
        await tick(service)
        assert await host.is_in(crashed, Status.ERROR)
        assert set(host.world.sandboxes) == {active}
        assert (await run(service, active, "echo alive")).stdout == b"alive\n"


async def test_an_inspect_that_fails_changes_nothing(host: FakeHost) -> None:
    """The link drops and the driver cannot say why: the session is not given up, and the runner dials again."""
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("inspect", error=DriverTransient("blip"), times=None)
        host.driver.cut_link(session_id)
        assert (await run(service, session_id, "echo back")).stdout == b"back\n"
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE)


async def test_a_dead_sandbox_ends_its_calls_at_once(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        running = asyncio.create_task(run(service, session_id, "sleep 100"))
        await until(lambda: host.busy(session_id), "the command runs")
        await host.driver.kill(session_id)
        with pytest.raises(SandboxLost, match="died"):
            await running
        assert await host.is_in(session_id, Status.ERROR)


async def test_out_of_memory_is_told(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await host.driver.kill(session_id, oom=True)
        await until(lambda: host.is_in(session_id, Status.ERROR), "the crash is noticed")
        error = (await host.row(session_id)).error
        assert error is not None and "memory" in error


async def test_a_sandbox_that_dies_slowly(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hung up, and at the first looks it still seems to run: no tick is needed to find out."""
    async with host.daemon() as service:
        session_id = await new(service)
        really, looks = host.driver.inspect, 2

        async def seems_to_run(handle: Handle) -> SandboxInfo:
            nonlocal looks
            looks -= 1
            info = await really(handle)
            return info if looks < 0 else dataclasses.replace(info, state=SandboxState.RUNNING)

        monkeypatch.setattr(host.driver, "inspect", seems_to_run)
        running = asyncio.create_task(run(service, session_id, "sleep 100"))
        await until(lambda: host.busy(session_id), "the command runs")
        await host.driver.kill(session_id)
        async with asyncio.timeout(30):
            with pytest.raises(SandboxLost):
                await running
        assert await host.is_in(session_id, Status.ERROR)


async def test_a_tick_with_an_old_memory_does_not_revive_a_destroyed_session(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reconciler read the row as ``active`` and the sandbox as running; both are gone by the time it acts."""
    async with host.daemon() as service:
        session_id = await new(service)
        original = host.driver.list

        async def list_then_destroy() -> list[SandboxInfo]:
            found = list(await original())
            await service.destroy(session_id)
            return found

        monkeypatch.setattr(host.driver, "list", list_then_destroy)
        await service._housekeeping.tick()
        with pytest.raises(SessionGone):
            await run(service, session_id, "true")
        await host.assert_clean()


async def test_a_row_that_fails_does_not_keep_the_others_waiting(host: FakeHost) -> None:
    async with host.daemon() as service:
        first, second = await new(service), await new(service)
        host.driver.inject("destroy", error=DriverTransient("busy"), times=2)
        for session_id in (first, second):
            with pytest.raises(DriverTransient):
                await service.destroy(session_id)
        host.driver.inject("destroy", error=DriverTransient("still busy"))
        await tick(service)
        states = sorted([(await host.row(first)).status, (await host.row(second)).status])
        assert states == [Status.DESTROYED, Status.DESTROYING]
        await tick(service)
        await host.assert_clean()


async def _force(host: FakeHost, session_id: str, status: Status) -> None:
    """A row as a daemon that died just then would have left it."""
    await host.store.change(
        session_id, statuses=list(Status), generation=None, now=host.clock(), values={"status": status}
    )


async def _forget_row(host: FakeHost, session_id: str) -> None:
    """As after a create that was killed before there was a session: neither a row nor a mark."""
    (host.root / "marks" / f"{session_id}.json").unlink()
    await _force(host, session_id, Status.DESTROYED)
    host.clock.now += 1
    await host.store.prune_destroyed(host.clock())
    assert session_id not in [row.id for row in await host.rows()]
