"""Workspaces on the fake machine: they outlive sessions, belong to one at a time, and go only when nobody has them."""

import asyncio

import pytest

from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.errors import BadInput, Conflict, DriverTransient, WorkspaceNotFound
from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from integration.sessions.copies.test_fork import fork
from integration.sessions.copies.test_snapshots import read, write
from support.fake_host import FakeHost, tick, until

pytestmark = pytest.mark.anyio

ADA = Caller("key_ada", "ada", Scope.USE, "ada", None)
BOB = Caller("key_bob", "bob", Scope.USE, "bob", None)


async def start(service: SessionService, name: str = "home", caller: Caller = ROOT, **more: object) -> str:
    request = CreateRequest(workspace=name, **more)  # type: ignore[arg-type]  # its own fields, by name
    return (await service.create(request, idempotency_key=None, caller=caller)).id


async def test_over_two_sessions_and_two_daemons(host: FakeHost) -> None:
    async with host.daemon() as service:
        first = await start(service)
        assert (await service.get(first)).spec.workspace == "home"
        await write(service, first, "/workspace/a", b"kept")
        await write(service, first, "/tmp/b", b"not kept")
        await service.destroy(first)
    async with host.daemon() as service:
        [view] = await service.workspaces.list(caller=ROOT)
        assert (view.row.name, view.row.session_id, view.row.disk_mb) == ("home", None, 64)
        second = await start(service)
        assert await read(service, second, "/workspace/a") == b"kept"
        with pytest.raises(Exception, match="/tmp/b"):
            await read(service, second, "/tmp/b")
        [view] = await service.workspaces.list(caller=ROOT)
        assert view.row.session_id == second


@pytest.mark.parametrize("how", [None, *PausedAs])
async def test_one_session_at_a_time(host: FakeHost, how: PausedAs | None) -> None:
    async with host.daemon() as service:
        first = await start(service)
        if how is not None:
            await service.pause(first, how)
        with pytest.raises(Conflict, match=f"held by session {first}"):
            await start(service)
        with pytest.raises(Conflict, match=f"held by session {first}"):
            await service.workspaces.delete("home", caller=ROOT)
        await service.destroy(first)
        await start(service)


async def test_of_many_at_once_one_gets_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        outcomes = await asyncio.gather(*(start(service) for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(one, str) for one in outcomes) == 1
        assert sum(isinstance(one, Conflict) for one in outcomes) == 7
        assert len(host.world.sandboxes) == 1


async def test_a_create_that_fails_gives_it_back(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", error=DriverTransient("not today"))
        with pytest.raises(DriverTransient):
            await start(service)
        await start(service)


async def test_each_has_names_of_its_own(host: FakeHost) -> None:
    async with host.daemon() as service:
        adas = await start(service, caller=ADA)
        await write(service, adas, "/workspace/a", b"ada's")
        bobs = await start(service, caller=BOB)
        with pytest.raises(Exception, match="/workspace/a"):
            await read(service, bobs, "/workspace/a")
        [view] = await service.workspaces.list(caller=ADA)
        assert (view.row.owner, view.row.session_id) == ("ada", adas)
        with pytest.raises(WorkspaceNotFound):
            await service.workspaces.delete(view.row.id, caller=BOB)
        assert len(await service.workspaces.list(caller=ROOT)) == 2
        for wrong in ("", "..", "a/b", "wsp_x", "x" * 64):
            with pytest.raises(BadInput, match="workspace"):
                await start(service, wrong)


async def test_removed_with_its_files(host: FakeHost) -> None:
    async with host.daemon() as service:
        first = await start(service)
        await write(service, first, "/workspace/a", b"x")
        await service.destroy(first)
        host.driver.inject("remove_workspace", error=DriverTransient("busy"))
        with pytest.raises(DriverTransient):
            await service.workspaces.delete("home", caller=ROOT)
        with pytest.raises(Conflict, match="being removed"):
            await start(service)
        assert await service.workspaces.list(caller=ROOT) == []
        await tick(service)
        assert list((host.root / "workspaces").iterdir()) == []
        second = await start(service)
        with pytest.raises(Exception, match="/workspace/a"):
            await read(service, second, "/workspace/a")


async def test_a_copy_has_the_files_and_not_the_workspace(host: FakeHost) -> None:
    async with host.daemon() as service:
        first = await start(service)
        await write(service, first, "/workspace/a", b"x")
        copy = await fork(service, first)
        assert copy.spec.workspace is None
        assert await read(service, copy.id, "/workspace/a") == b"x"
        await write(service, copy.id, "/workspace/a", b"y")
        assert await read(service, first, "/workspace/a") == b"x"


async def test_it_is_not_taken_from_the_dead(host: FakeHost) -> None:
    async with host.daemon() as service:
        first = await start(service)
        await host.driver.kill(first)
        await until(lambda: host.is_in(first, Status.ERROR), "it is dead")
        with pytest.raises(Conflict, match=first):
            await start(service)
        await service.revive(first)
        await service.destroy(first)
        await start(service)
