"""A database that is lost, older or another's: what was somebody's is set aside and comes back, the rest is removed."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.callers.types import ROOT
from holdfast.drivers.base import SandboxState
from holdfast.errors import Conflict, DriverTransient, SessionNotFound, StrayNotFound, WrongState
from holdfast.records.machine import Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest, StrayKind
from holdfast.store import Store
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until

pytestmark = pytest.mark.anyio

WEEK = DEFAULTS.stray_keep_seconds


@contextlib.asynccontextmanager
async def lost(host: FakeHost) -> AsyncIterator[FakeHost]:
    """The same machine with an empty database."""
    store = await Store.open(f"sqlite:///{host.root / 'empty.db'}")
    other = FakeHost(host.root, store, node=host.node)
    other.world, other.clock = host.world, host.clock
    try:
        yield other
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def unable(host: FakeHost, *, stop: bool = True) -> AsyncIterator[SessionService]:
    """A daemon whose driver lacks something."""
    service = host.make_service()
    host.driver._capabilities = replace(host.driver.capabilities, pause=False, stop=stop)
    async with service.running():
        yield service


async def aside(service: SessionService) -> dict[str, StrayKind]:
    return {one.id: one.kind for one in await service.strays.list()}


async def test_a_lost_database_costs_no_sandbox_and_no_process(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.write_file(session_id, "/workspace/f", b"kept", mode=None)
    async with lost(host) as empty, empty.daemon() as service:
        for _ in range(3):
            await tick(service)
        assert await aside(service) == {session_id: StrayKind.SESSION}
        info = await empty.driver.inspect(empty.driver.handle_for(session_id))
        assert info.state is SandboxState.PAUSED
        with pytest.raises(SessionNotFound):
            await run(service, session_id, "true")
        await service.strays.adopt(session_id)
        assert await aside(service) == {}
        view = await service.get(session_id)
        assert (view.status, view.owner) == (Status.ACTIVE, "root")
        assert (await run(service, session_id, "echo on")).stdout == b"on\n"
        assert (await service.read_file(session_id, "/workspace/f", max_bytes=None))[0] == b"kept"
        await tick(service)
        assert empty.count("destroy") == empty.count("stop") == 0
        await service.destroy(session_id)
        assert list((empty.root / "marks").iterdir()) == []


async def test_that_an_old_session_was_adopted_is_news(host: FakeHost) -> None:
    """By the time at which it was made, the event would be too old to be kept, and no webhook would get it."""
    async with host.daemon() as service:
        session_id = await new(service)
    host.clock.now += 1000
    async with lost(host) as empty, empty.daemon() as service:
        await service.strays.adopt(session_id)
        [adopted] = [
            one for one in (await empty.whole.events.page(after=None, limit=9)).events if one.kind == "adopted"
        ]
        assert adopted.at == host.clock.now


async def test_an_adopted_session_belongs_to_no_thread(host: FakeHost) -> None:
    """A thread that the database does not know would have it removed as an orphan: it is known by this key."""
    async with host.daemon() as service:
        session_id = await new(service, key="thread:thr_1:1:x")
    async with lost(host) as empty, empty.daemon() as service:
        await service.strays.adopt(session_id)
        assert (await empty.row(session_id)).idempotency_key is None
        assert await new(service, key="thread:thr_1:1:x") != session_id


async def test_the_right_database_again_and_nothing_has_happened(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    async with lost(host) as empty, empty.daemon() as service:
        assert await aside(service) == {session_id: StrayKind.SESSION}
    async with host.daemon() as service:
        assert (await run(service, session_id, "echo on")).stdout == b"on\n"
        assert host.count("resume") == 1
        await tick(service)
        assert await aside(service) == {}


async def test_after_an_hour_it_holds_no_memory_and_after_its_time_it_is_removed(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.write_file(session_id, "/workspace/f", b"kept", mode=None)
    async with lost(host) as empty, empty.daemon() as service:
        host.clock.now += 3601
        await tick(service)
        info = await empty.driver.inspect(empty.driver.handle_for(session_id))
        assert info.state is SandboxState.STOPPED
        host.clock.now += WEEK - 3700
        await tick(service)
        assert empty.count("destroy") == 0
        await service.strays.adopt(session_id)
        assert (await service.read_file(session_id, "/workspace/f", max_bytes=None))[0] == b"kept"
    (host.root / "empty.db").unlink()
    async with lost(host) as empty, empty.daemon() as service:
        host.clock.now += WEEK + 1
        empty.driver.inject("destroy", error=DriverTransient("busy"))
        await tick(service)
        await tick(service)
        assert empty.world.sandboxes == {}
        assert await aside(service) == {}
        kinds = [event.kind for event in (await empty.whole.events.page(after=None, limit=100)).events]
        assert kinds == ["stray_removed"], "and that it was set aside is too old to be kept"


async def test_a_driver_that_cannot_freeze_stops_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    async with lost(host) as empty, unable(empty) as service:
        assert (empty.count("stop"), empty.count("destroy")) == (1, 0)
        await service.strays.adopt(session_id)
        assert (await run(service, session_id, "echo back")).stdout == b"back\n"


async def test_a_driver_that_can_do_neither_lets_it_run(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    async with lost(host) as empty, unable(empty, stop=False) as service:
        await tick(service)
        assert (empty.count("stop"), empty.count("pause"), empty.count("destroy")) == (0, 0, 0)
        await service.strays.adopt(session_id)
        assert (await run(service, session_id, "echo back")).stdout == b"back\n"


async def test_what_was_never_a_session_is_removed_at_once(host: FakeHost) -> None:
    """Out of the pool, and half made: neither has a mark."""
    settings = replace(DEFAULTS, pool={"empty": 1})
    service = host.make_service(settings)
    async with service.running():
        await until(lambda: bool(host.world.sandboxes), "one waits in the pool")
        [pooled] = host.world.sandboxes
        assert not (host.root / "marks" / f"{pooled}.json").exists()
        host.driver.inject("destroy", error=DriverTransient("the daemon dies"), times=None)
    assert list(host.world.sandboxes) == [pooled]
    async with host.daemon():
        await host.assert_clean()


async def test_a_destroy_that_had_begun_is_finished_whatever_the_database_says(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=DriverTransient("busy"))
        with pytest.raises(DriverTransient):
            await service.destroy(session_id)
    async with lost(host) as empty, empty.daemon() as service:
        assert await aside(service) == {}
        await empty.assert_clean()


async def test_what_was_used_since_an_older_database_was_written_has_not_expired(host: FakeHost) -> None:
    """The rows are those of an hour ago; they have a time to live of 100 seconds."""
    async with host.daemon() as service:
        session_id = await new(service)
    before = host.clock.now
    host.clock.now += 3600
    os.utime(host.root / "marks" / f"{session_id}.json", (host.clock.now - 10, host.clock.now - 10))
    async with host.daemon() as service:
        await tick(service)
        assert (await run(service, session_id, "echo alive")).stdout == b"alive\n"
        await service._housekeeping.save_activity()
    assert (host.root / "marks" / f"{session_id}.json").stat().st_mtime == host.clock.now > before
    host.clock.now += 101
    async with host.daemon() as service:
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYED), "what was not used since expires as ever"


async def test_snapshots_and_workspaces(host: FakeHost) -> None:
    async with host.daemon() as service:
        made = await service.create(CreateRequest(workspace="notes"), idempotency_key=None, caller=ROOT)
        await service.write_file(made.id, "/workspace/f", b"kept", mode=None)
        taken = await service.snapshots.create(made.id, "base", idempotency_key="key", caller=ROOT)
        await tick(service)
        [workspace] = await service.workspaces.list(caller=ROOT)
        half = host.root / "snapshots" / "snp_half"
        half.mkdir()
    async with lost(host) as empty, empty.daemon() as service:
        await until(lambda: not half.exists(), "what was never whole is removed")
        await tick(service)
        kinds = {made.id: StrayKind.SESSION, taken.id: StrayKind.SNAPSHOT, workspace.row.id: StrayKind.WORKSPACE}
        assert await aside(service) == kinds
        views = {one.kind: one for one in await service.strays.list()}
        assert views[StrayKind.WORKSPACE].remove_at is None
        assert views[StrayKind.SNAPSHOT].name == "base"
        await service.strays.adopt(made.id)
        await service.strays.adopt(taken.id)
        assert await aside(service) == {}
        assert (await service.get(made.id)).spec.workspace == "notes"
        [again] = await service.workspaces.list(caller=ROOT)
        assert (again.row.id, again.row.session_id) == (workspace.row.id, made.id)
        copy = await service.create(CreateRequest(snapshot="base"), idempotency_key=None, caller=ROOT)
        assert (await service.read_file(copy.id, "/workspace/f", max_bytes=None))[0] == b"kept"


async def test_a_workspace_alone(host: FakeHost) -> None:
    async with host.daemon() as service:
        made = await service.create(CreateRequest(workspace="notes"), idempotency_key=None, caller=ROOT)
        await tick(service)
        await service.destroy(made.id)
        [workspace] = await service.workspaces.list(caller=ROOT)
    async with lost(host) as empty, empty.daemon() as service:
        host.clock.now += WEEK + 1
        await tick(service)
        assert await aside(service) == {workspace.row.id: StrayKind.WORKSPACE}
        other = await service.create(CreateRequest(workspace="notes"), idempotency_key=None, caller=ROOT)
        with pytest.raises(Conflict, match="notes"):
            await service.strays.adopt(workspace.row.id)
        await service.destroy(other.id)
        await service.workspaces.delete("notes", caller=ROOT)
        await service.strays.adopt(workspace.row.id)
        assert [one.row.id for one in await service.workspaces.list(caller=ROOT)] == [workspace.row.id]


async def test_a_snapshots_time_ends_too(host: FakeHost) -> None:
    async with host.daemon() as service:
        taken = await service.snapshots.create(await new(service), None, idempotency_key=None, caller=ROOT)
    async with lost(host) as empty, empty.daemon() as service:
        await until(lambda: _lists(service, taken.id), "it is set aside")
        host.clock.now += WEEK + 1
        await tick(service)
        assert list((empty.root / "snapshots").iterdir()) == []


async def _lists(service: SessionService, id: str) -> bool:
    return id in await aside(service)


async def test_an_admin_may_remove_it_before(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    async with lost(host) as empty, empty.daemon() as service:
        await service.strays.remove(session_id)
        await empty.assert_clean()
        for unknown in (session_id, "ses_../../etc", "", "snp_0"):
            with pytest.raises(StrayNotFound, match="holdfast strays"):
                await service.strays.remove(unknown)


async def test_a_damaged_mark_keeps_the_files(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    mark: Path = host.root / "marks" / f"{session_id}.json"
    mark.write_text("")
    async with lost(host) as empty, empty.daemon() as service:
        assert await aside(service) == {session_id: StrayKind.SESSION}
        with pytest.raises(WrongState, match="damaged"):
            await service.strays.adopt(session_id)
        assert list(empty.world.sandboxes) == [session_id]
        await service.strays.remove(session_id)
        assert not mark.exists()


async def test_two_who_adopt_it_at_once(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    async with lost(host) as empty, empty.daemon() as service:
        await asyncio.gather(*(service.strays.adopt(session_id) for _ in range(3)), tick(service))
        assert (await run(service, session_id, "echo one")).stdout == b"one\n"
        assert len(await empty.rows()) == 1


async def test_marks_are_for_the_daemon_alone(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
    assert (host.root / "marks").stat().st_mode & 0o777 == 0o700
    assert (host.root / "marks" / f"{session_id}.json").stat().st_mode & 0o777 == 0o600
