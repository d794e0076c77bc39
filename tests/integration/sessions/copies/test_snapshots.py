"""Snapshots on the fake machine: taken, used, refused, removed, and cleaned up after whatever went wrong."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.drivers.base import Capabilities
from holdfast.errors import (
    BadInput,
    Conflict,
    DriverQuota,
    DriverTransient,
    DriverUnsupported,
    IdempotencyMismatch,
    SessionGone,
    SnapshotNotFound,
    TooManySnapshots,
    Unavailable,
    WrongState,
)
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.limits import Limits
from holdfast.records.machine import PausedAs, Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest, ForkRequest
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until

pytestmark = pytest.mark.anyio

ADA = Caller("key_ada", "ada", Scope.USE, "ada", None)
BOB = Caller("key_bob", "bob", Scope.USE, "bob", None)


async def take(
    service: SessionService, session_id: str, name: str | None = None, key: str | None = None, caller: Caller = ROOT
) -> SnapshotRow:
    return await service.snapshots.create(session_id, name, idempotency_key=key, caller=caller)


async def start(service: SessionService, snapshot: str, caller: Caller = ROOT, **wishes: object) -> str:
    request = CreateRequest(snapshot=snapshot, **wishes)  # type: ignore[arg-type]  # its own fields, by name
    return (await service.create(request, idempotency_key=None, caller=caller)).id


async def write(service: SessionService, session_id: str, path: str, data: bytes) -> None:
    await service.write_file(session_id, path, data, mode=None)


async def read(service: SessionService, session_id: str, path: str) -> bytes:
    return (await service.read_file(session_id, path, max_bytes=None))[0]


def on_disk(host: FakeHost) -> list[str]:
    directory = host.root / "snapshots"
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


async def test_any_number_of_sessions_from_one_snapshot(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await write(service, session_id, "/workspace/a", b"then")
        view = await take(service, session_id, "base")
        assert (view.name, view.status, view.kind) == ("base", SnapshotStatus.READY, SnapshotKind.FILES)
        assert (view.session_id, view.owner, view.image) == (session_id, "root", "empty")
        assert view.size_bytes is not None and view.size_bytes > 0
        await write(service, session_id, "/workspace/a", b"now")
        copies = await asyncio.gather(*(start(service, "base") for _ in range(4)))
        assert [await read(service, one, "/workspace/a") for one in copies] == [b"then"] * 4
        await write(service, copies[0], "/workspace/a", b"mine")
        assert await read(service, copies[1], "/workspace/a") == b"then"
        assert await read(service, session_id, "/workspace/a") == b"now"
        await service.destroy(session_id)
        await service.destroy(copies[0])
        late = await start(service, view.id)
        assert await read(service, late, "/workspace/a") == b"then"
        assert (await service.get(late)).snapshot_id == view.id
        await service.snapshots.delete("base", caller=ROOT)
        assert await read(service, late, "/workspace/a") == b"then"  # it does not need it any more
        with pytest.raises(SnapshotNotFound):
            await start(service, "base")
    assert on_disk(host) == []


@pytest.mark.parametrize("how", list(PausedAs))
async def test_of_a_sleeping_session_without_waking_it(host: FakeHost, how: PausedAs) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await write(service, session_id, "/workspace/a", b"x")
        await service.pause(session_id, how)
        await take(service, session_id, "base")
        assert (await service.get(session_id)).paused_as == how
        assert await read(service, await start(service, "base"), "/workspace/a") == b"x"


async def test_what_is_not_said_is_as_it_was(host: FakeHost) -> None:
    async with host.daemon() as service:
        first = CreateRequest(env={"A": "1", "B": "2"}, cpus=0.5, disk_mb=32, network=NetworkPolicy.FULL)
        session_id = (await service.create(first, idempotency_key=None, caller=ROOT)).id
        await take(service, session_id, "base")
        view = await service.get(await start(service, "base"))
        assert (view.spec.limits, view.spec.network) == (Limits(0.5, 64, 64, 32), NetworkPolicy.FULL)
        other = await start(service, "base", env={"B": "3"}, disk_mb=64, network=NetworkPolicy.NONE, cpus=2.0)
        view = await service.get(other)
        assert (view.spec.limits, view.spec.network) == (Limits(2.0, 64, 64, 64), NetworkPolicy.NONE)
        assert (await run(service, other, "echo $A $B")).stdout == b"1 3\n"
        for wrong, name in (({"disk_mb": 16}, "disk_mb"), ({"writable_root": True}, "writable_root")):
            with pytest.raises(BadInput, match=name):
                await start(service, "base", **wrong)


async def test_names(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        for wrong in ("", "../x", "snp_mine", "-a", "a b", "ä", "x" * 64):
            with pytest.raises(BadInput, match="name"):
                await take(service, session_id, wrong)
        nameless = await take(service, session_id)
        assert nameless.name == nameless.id
        await take(service, session_id, "base")
        with pytest.raises(Conflict, match="snapshot base already"):
            await take(service, session_id, "base")
        assert [one.name for one in await service.snapshots.list(caller=ROOT)] == ["base", nameless.id]


async def test_the_same_key_is_the_same_snapshot(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        first, again = await asyncio.gather(*(take(service, session_id, "base", "k") for _ in range(2)))
        assert first == again
        with pytest.raises(IdempotencyMismatch):
            await take(service, session_id, "other", "k")
        assert host.count("snapshot") == 1


async def test_each_sees_only_its_own(host: FakeHost) -> None:
    async with host.daemon() as service:
        adas = await new(service, caller=ADA)
        view = await take(service, adas, "base", caller=ADA)
        assert [one.id for one in await service.snapshots.list(caller=ADA)] == [view.id]
        assert await service.snapshots.list(caller=BOB) == []
        for reference in ("base", view.id):
            with pytest.raises(SnapshotNotFound):
                await service.snapshots.get(reference, caller=BOB)
            with pytest.raises(SnapshotNotFound):
                await service.snapshots.delete(reference, caller=BOB)
            with pytest.raises(SnapshotNotFound):
                await start(service, reference, BOB)
        assert (await service.snapshots.get(view.id, caller=ROOT)).owner == "ada"
        assert (await service.get(await start(service, view.id, ROOT))).owner == "root"


async def test_one_that_is_being_used_stays(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        view = await take(service, session_id, "base")
        host.driver.inject("restore", hang=True)
        making = asyncio.create_task(start(service, "base"))
        await until(lambda: host.count("restore") == 1, "a session is being made from it")
        with pytest.raises(Conflict, match=r"session ses_\w+ is being made from it"):
            await service.snapshots.delete(view.id, caller=ROOT)
        host.driver.release("restore")
        await making
        await service.snapshots.delete(view.id, caller=ROOT)
        assert on_disk(host) == []


@pytest.mark.parametrize("moment", ["before", "middle", "after"])
async def test_one_that_fails_leaves_nothing(host: FakeHost, moment: str) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("snapshot", error=DriverQuota("no room"), moment=moment)  # type: ignore[arg-type]  # one of two words
        with pytest.raises(DriverQuota):
            await take(service, session_id, "base", "k")
        assert on_disk(host) == []
        assert await service.snapshots.list(caller=ROOT) == []
        assert (await run(service, session_id, "echo hi")).stdout == b"hi\n"
        assert (await take(service, session_id, "base", "k")).status is SnapshotStatus.READY  # the key is free again


async def test_one_that_cannot_be_removed_now_is_removed_later(host: FakeHost) -> None:
    async with host.daemon() as service:
        view = await take(service, await new(service), "base")
        host.driver.inject("forget_snapshot", error=DriverTransient("busy"))
        with pytest.raises(DriverTransient):
            await service.snapshots.delete("base", caller=ROOT)
        assert (await service.snapshots.get(view.id, caller=ROOT)).status is SnapshotStatus.DELETING
        with pytest.raises(SnapshotNotFound):
            await start(service, "base")
        await tick(service)
        assert await service.snapshots.list(caller=ROOT) == []
    assert on_disk(host) == []


async def test_what_a_dead_daemon_left_is_removed(host: FakeHost) -> None:
    """Half-written ones, half-removed ones, and files that no row knows of. What is ready stays."""
    async with host.daemon() as service:
        session_id = await new(service)
        ready = await take(service, session_id, "ready")
        row = await host.whole.snapshots.get(ready.id, owner="root")
    for number, status in enumerate((SnapshotStatus.WRITING, SnapshotStatus.DELETING)):
        left = replace(row, id=f"snp_{number}", name=status, status=status)
        await host.whole.snapshots.insert(SnapshotRow(**{n: getattr(left, n) for n in left.__slots__}), max_owned=None)
    directory = host.root / "snapshots"
    for name in ("snp_0.new", "snp_1", "snp_stray", "snp_stray2.new"):
        (directory / name).mkdir()
        (directory / name / "disk.img").write_bytes(b"x")
    for name in ("snp_0.shells", "snp_1.new", "snp_stray3.new", "snp_stray4.shells.new"):
        (directory / name).write_bytes(b"x")  # a removal is not stopped by a file where it wants a directory
    async with host.daemon() as service:
        await until(lambda: on_disk(host) == [ready.id, f"{ready.id}.shells"], "only the ready one is left")
        await tick(service)
        assert [one.name for one in await service.snapshots.list(caller=ROOT)] == ["ready"]
        await start(service, "ready")


async def test_refusals(host: FakeHost) -> None:
    async with host.daemon(replace(DEFAULTS, max_snapshots=1)) as service:
        session_id = await new(service)
        await take(service, session_id)
        with pytest.raises(TooManySnapshots, match="max_snapshots"):
            await take(service, session_id)
        await host.driver.kill(session_id)
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is dead")
        with pytest.raises(WrongState):
            await take(service, session_id)
        await service.destroy(session_id)
        with pytest.raises(SessionGone):
            await take(service, session_id)


async def test_a_driver_that_takes_none(host: FakeHost) -> None:
    service = host.make_service()
    host.driver._capabilities = Capabilities(isolation=False)
    async with service.running():
        session_id = await new(service)
        with pytest.raises(DriverUnsupported, match="takes no snapshots"):
            await take(service, session_id)
        with pytest.raises(DriverUnsupported, match="no named workspaces"):
            await service.create(CreateRequest(workspace="home"), idempotency_key=None, caller=ROOT)
        await service.destroy(session_id)


async def test_it_is_told(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, caller=ADA)
        view = await take(service, session_id, "base", caller=ROOT)
        page = await host.store.events.page(after=None, limit=100, kinds=["snapshot"])
        [event] = page.events
        assert (event.session_id, event.owner) == (session_id, "ada")
        assert json.loads(json.dumps(event.data))["snapshot_id"] == view.id


async def test_images_of_snapshots_stay(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await take(service, session_id, "base")
        await service.destroy(session_id)
        await tick(service)
    assert await host.store.referenced_images(node="node_test") == {"empty"}


async def test_hosts_that_share_a_directory_start_from_each_others(host: FakeHost, tmp_path: Path) -> None:
    there = FakeHost(tmp_path / "there", host.whole, node="node_there", shared=tmp_path / "common")
    here = FakeHost(tmp_path / "here", host.whole, node="node_here", shared=tmp_path / "common")
    async with there.daemon() as service:
        session_id = await new(service)
        await write(service, session_id, "/workspace/a", b"then")
        await run(service, session_id, "cd /tmp")
        view = await take(service, session_id, "base")
    (tmp_path / "common" / "node_there" / "snp_stray").mkdir()
    async with here.daemon() as service:
        copy = await start(service, "base")
        assert await read(service, copy, "/workspace/a") == b"then"
        fork, _kind = await service.fork(copy, ForkRequest(), idempotency_key=None, caller=ROOT)
        assert await read(service, fork.id, "/workspace/a") == b"then"
        await tick(service)
        kept = [f"{view.id}", f"{view.id}.shells", "snp_stray"]
        assert sorted(path.name for path in (tmp_path / "common").glob("*/*")) == kept  # another's are not swept
        await service.snapshots.delete("base", caller=ROOT)
    async with there.daemon() as service:
        await tick(service)
        await until(lambda: list((tmp_path / "common").glob("*/*")) == [], "its own stray is swept")
    for one in (here, there):
        await one.world.close()


async def test_a_snapshot_that_cannot_be_reached_is_refused(host: FakeHost, tmp_path: Path) -> None:
    common = tmp_path / "common"
    there = FakeHost(tmp_path / "there", host.whole, node="node_there", shared=common)
    async with there.daemon() as service:
        await take(service, await new(service), "base")
    async with host.daemon() as service:
        with pytest.raises(BadInput, match=r"node_there.*snapshot_dir"):
            await start(service, "base")
    host.shared = common
    common.rename(tmp_path / "moved")
    async with host.daemon() as service:
        with pytest.raises(Unavailable, match="cannot be used: No such file"):  # not mounted, perhaps
            await start(service, "base")
    common.write_text("no directory")  # whoever mounted it made a mistake: that says nothing of what is in it
    async with host.daemon() as service:
        with pytest.raises(Unavailable, match="cannot be used: Not a directory"):
            await start(service, "base")
    await there.world.close()
