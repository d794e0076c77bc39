"""Forks on the fake machine: a copy of a session, whatever that one is doing, and nothing left of the way there."""

import asyncio
from operator import attrgetter

import pytest

from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.drivers.base import SandboxSpec
from holdfast.errors import (
    DriverTransient,
    HoldfastError,
    IdempotencyMismatch,
    SessionGone,
    SessionNotFound,
    TooManySessions,
    WrongState,
)
from holdfast.records.machine import PausedAs, Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.ids import fork_id_for
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session
from holdfast.sessions.types import CreateRequest, ForkRequest
from integration.sessions.copies.test_snapshots import on_disk, read, write
from support.fake_host import FakeHost, new, run, tick, until

pytestmark = pytest.mark.anyio

ONE = Caller("key_ada", "ada", Scope.USE, "ada", 1)


async def fork(
    service: SessionService, session_id: str, key: str | None = None, caller: Caller = ROOT, **wishes: object
) -> SessionRow:
    request = ForkRequest(**wishes)  # type: ignore[arg-type]  # any of its fields
    return (await service.fork(session_id, request, idempotency_key=key, caller=caller))[0]


async def test_a_copy_that_goes_its_own_way(host: FakeHost) -> None:
    async with host.daemon() as service:
        wish = CreateRequest(env={"A": "1"}, network=NetworkPolicy.FULL, metadata={"a": "b"}, ttl_seconds=77, pids=32)
        original = await service.create(wish, idempotency_key=None, caller=ROOT)
        await write(service, original.id, "/workspace/a", b"then")
        copy, kind = await service.fork(original.id, ForkRequest(), idempotency_key=None, caller=ROOT)
        assert kind is SnapshotKind.FILES
        assert (copy.status, copy.spec.fork_of) == (Status.ACTIVE, original.id)
        of_spec = ("limits", "network", "writable_root", "sleep")
        same = attrgetter("image", *(f"spec.{name}" for name in of_spec), "metadata", "ttl_seconds", "owner")
        assert same(copy) == same(original)
        await write(service, original.id, "/workspace/a", b"now")
        assert await read(service, copy.id, "/workspace/a") == b"then"
        assert (await run(service, copy.id, "echo $A $SANDBOX_ID")).stdout == f"1 {copy.id}\n".encode()
        await service.destroy(original.id)
        other = await fork(service, copy.id, metadata={"c": "d"}, ttl_seconds=5)
        assert (other.metadata, other.ttl_seconds) == ({"c": "d"}, 5)
        assert await read(service, other.id, "/workspace/a") == b"then"
        await until(lambda: on_disk(host) == [], "what the copies were made of is gone")


@pytest.mark.parametrize("how", list(PausedAs))
async def test_of_a_sleeping_session_without_waking_it(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await write(service, session_id, "/workspace/a", b"x")
        await service.pause(session_id, how)
        copy = await fork(service, session_id)
        assert (await service.get(session_id)).paused_as == how
        assert await read(service, copy.id, "/workspace/a") == b"x"


async def test_while_a_command_runs(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        running = asyncio.create_task(run(service, session_id, "sleep 0.5; echo done"))
        await until(lambda: host.busy(session_id), "the command runs")
        copies = await asyncio.gather(*(fork(service, session_id) for _ in range(3)))
        assert [(await run(service, one.id, "echo hi")).stdout for one in copies] == [b"hi\n"] * 3
        assert (await running).stdout == b"done\n"


async def test_the_same_key_is_the_same_copy(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        views = await asyncio.gather(*(fork(service, session_id, "k") for _ in range(3)))
        assert len({view.id for view in views}) == 1
        assert host.count("snapshot") == 1
        with pytest.raises(IdempotencyMismatch):
            await fork(service, session_id, "k", ttl_seconds=9)
        with pytest.raises(IdempotencyMismatch):
            await new(service, "k")
        await service.destroy(session_id)
        assert (await fork(service, session_id, "k")).id == views[0].id
        with pytest.raises(SessionGone):
            await fork(service, session_id)


@pytest.mark.parametrize("step", ["snapshot", "restore"])
@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_one_that_fails_leaves_nothing(host: FakeHost, step: str, moment: str) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject(step, error=DriverTransient("not today"), moment=moment)  # type: ignore[arg-type]  # one of two words
        with pytest.raises(DriverTransient):
            await fork(service, session_id)
        assert on_disk(host) == []
        assert list(host.world.sandboxes) == [session_id]
        assert (await run(service, session_id, "echo hi")).stdout == b"hi\n"
        assert [row.status for row in await host.rows() if row.id != session_id] == [Status.DESTROYED]


@pytest.mark.parametrize("left", ["nothing", "half", "whole", "sandbox"])
async def test_one_that_was_cut_off_is_finished(host: FakeHost, left: str) -> None:
    """The daemon died after it had written the row, half of the snapshot, all of it, or had made the sandbox."""
    async with host.daemon() as service:
        session_id = await new(service)
        await write(service, session_id, "/workspace/a", b"x")
        child = (await service._planning.fork(await host.row(session_id), ForkRequest(), "k", "root")).record
    await host.store.insert(child, max_live=None)
    place = host.root / "snapshots" / fork_id_for(child.id)
    place.parent.mkdir(exist_ok=True)
    if left == "half":
        place.with_name(place.name + ".new").mkdir()
    elif left != "nothing":
        await host.driver.snapshot(host.driver.handle_for(session_id), place)
    if left == "sandbox":
        service = host.make_service()
        spec = await _sandbox_spec(service, host, child.id)
        await host.driver.restore(spec, place)
    async with host.daemon() as service:
        await until(lambda: host.is_in(child.id, Status.ACTIVE), "the copy is up")
        assert (await fork(service, session_id, "k")).id == child.id
        assert await read(service, child.id, "/workspace/a") == b"x"
        await until(lambda: on_disk(host) == [], "and what it was made of is gone")


async def _sandbox_spec(service: SessionService, host: FakeHost, session_id: str) -> SandboxSpec:
    row = await host.row(session_id)
    spec = row.spec
    return SandboxSpec(
        session_id=row.id,
        image=await host.images.resolve("empty"),
        limits=spec.limits,
        network=spec.network.network,
        writable_root=False,
        env={},
        link_dir=service._context.hub.directory(row.id),
        token=Session(service._context, row).token_of(row.id),
    )


async def test_one_whose_original_is_gone_is_given_up(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        child = (await service._planning.fork(await host.row(session_id), ForkRequest(), "k", "root")).record
        await host.store.insert(child, max_live=None)
        await service.destroy(session_id)
        await tick(service)
        await until(lambda: host.is_in(child.id, Status.DESTROYED), "it is given up")
        with pytest.raises(HoldfastError, match="could not be created"):
            await fork(service, session_id, "k")
        await host.assert_clean()


async def test_limits_and_states(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, caller=ONE)
        with pytest.raises(TooManySessions):
            await fork(service, session_id, caller=ONE)
        with pytest.raises(SessionNotFound):
            await fork(service, "ses_none")
        await host.driver.kill(session_id)
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead")
        with pytest.raises(WrongState, match="crashed"):
            await fork(service, session_id)
        assert host.count("snapshot") == 0


async def test_it_is_told_of_the_original(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, caller=ONE)
        copy = await fork(service, session_id)
        [event] = (await host.store.events.page(after=None, limit=100, kinds=["forked"])).events
        assert (event.session_id, event.owner, event.data["fork"]) == (session_id, "ada", copy.id)
