"""Who is frozen when the host's disk is nearly full, what its callers are told, and when it goes on."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.drivers.base import DiskUse, SandboxState
from holdfast.errors import DiskFull, DriverTransient
from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.watch.disk_guard import HELD
from holdfast.sessions.watch.room import Room
from support.fake_host import DEFAULTS, FakeHost, new, run, until

pytestmark = pytest.mark.anyio

MB = 1 << 20
LOW = 256 * MB
SETTINGS = replace(DEFAULTS, low_disk_bytes=LOW)


class Disk:
    """The host's: so much is free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 2 * LOW
        monkeypatch.setattr(Room, "_free", lambda _room: self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def uses(host: FakeHost, session_id: str, allocated: int, used: int | None = None) -> None:
    host.world.sandboxes[session_id].disk = DiskUse(allocated, allocated if used is None else used)


def is_frozen(host: FakeHost, session_id: str) -> bool:
    return host.world.sandboxes[session_id].state is SandboxState.PAUSED


async def kinds(host: FakeHost, session_id: str) -> list[str]:
    found = (await host.store.events.page(after=0, limit=100)).events
    return [event.kind for event in found if event.session_id == session_id and event.kind.startswith("disk_")]


async def frozen(host: FakeHost, service: SessionService, disk: Disk) -> tuple[str, str]:
    """One that writes, frozen, and another."""
    writer, other = await new(service), await new(service)
    await until(lambda: _based(service, writer), "they were looked at")
    disk.free = LOW - MB
    uses(host, writer, 200 * MB)
    uses(host, other, MB)
    await until(lambda: is_frozen(host, writer), "the writer is frozen")
    await until(lambda: _told(host, writer), "and that is told")
    return writer, other


def _based(service: SessionService, session_id: str) -> bool:
    return session_id in service._housekeeping.disk_guard._base


async def _told(host: FakeHost, session_id: str) -> bool:
    return (await host.row(session_id)).error == HELD


async def test_the_writer_is_frozen_and_goes_on(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        writer, other = await frozen(host, service, disk)
        for refused in (run(service, writer, "echo no"), service.read_file(writer, "/f", max_bytes=1)):
            with pytest.raises(DiskFull, match="is frozen"):
                await refused
        with pytest.raises(DiskFull, match="is frozen"):
            await service.pause(writer, PausedAs.FILES)
        assert (await run(service, other, "echo yes")).stdout == b"yes\n"
        assert host.registry.get_sample_value("holdfast_sessions_frozen_for_room") == 1
        disk.free = LOW + MB
        uses(host, other, 2 * MB)
        await until(lambda: not service.room.is_low, "there is a little room")
        assert is_frozen(host, writer)
        disk.free = 2 * LOW
        await until(lambda: not is_frozen(host, writer), "it goes on")
        await until(lambda: _is_well(host, writer), "and that is told")
        assert (await run(service, writer, "echo yes")).stdout == b"yes\n"
        assert await kinds(host, writer) == ["disk_low", "disk_room"]
        assert await kinds(host, other) == []


async def _is_well(host: FakeHost, session_id: str) -> bool:
    return (await host.row(session_id)).error is None


async def test_what_the_kernel_owes_counts(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        writer = await new(service)
        await until(lambda: _based(service, writer), "it was looked at")
        disk.free = 4 * LOW
        uses(host, writer, 0, used=4 * LOW - MB)
        await until(lambda: is_frozen(host, writer), "the writer is frozen, with much of the disk free")


async def test_many_who_write_a_little(host: FakeHost, disk: Disk) -> None:
    """All together take less than a half of what is left. Who has written a little goes on, until it writes more."""
    async with host.daemon(SETTINGS) as service:
        writers = [await new(service) for _ in range(8)]
        await until(lambda: _based(service, writers[-1]), "they were looked at")
        disk.free = LOW - MB
        for number, writer in enumerate(writers):
            uses(host, writer, number * MB)
        await until(lambda: service.room.is_low, "it is low")
        await service._housekeeping.disk_guard.look()
        assert not any(is_frozen(host, writer) for writer in writers)
        disk.free = 32 * MB
        await until(lambda: is_frozen(host, writers[-1]), "less is left, and less is a share")
        await service._housekeeping.disk_guard.look()
        assert [is_frozen(host, writer) for writer in writers][:3] == [False] * 3
        disk.free = 0
        await service._housekeeping.disk_guard.look()
        assert [is_frozen(host, writer) for writer in writers] == [False] * 5 + [True] * 3
        uses(host, writers[1], 33 * MB)
        await until(lambda: is_frozen(host, writers[1]), "who goes on writing")
        assert not is_frozen(host, writers[0])


async def test_a_command_under_way_gets_an_answer(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        writer = await new(service)
        await until(lambda: _based(service, writer), "it was looked at")
        command = asyncio.create_task(run(service, writer, "sleep 3600", key="once"))
        await until(lambda: host.busy(writer), "it runs")
        disk.free, host.world.sandboxes[writer].disk = 0, DiskUse(LOW, LOW)
        with pytest.raises(DiskFull, match="is frozen"):
            await command
        await service.destroy(writer)
        assert await host.is_in(writer, Status.DESTROYED)


async def test_the_next_daemon(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        writer, _ = await frozen(host, service, disk)
    await host.driver.resume(host.driver.handle_for(writer))  # it had died between this and telling of it
    async with host.daemon(SETTINGS) as service:
        assert is_frozen(host, writer)
        with pytest.raises(DiskFull, match="is frozen"):
            await run(service, writer, "echo no")
        disk.free = 2 * LOW
        await until(lambda: _is_well(host, writer), "it goes on")
        assert (await run(service, writer, "echo yes")).stdout == b"yes\n"


async def test_the_next_daemon_has_no_mark(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        writer, _ = await frozen(host, service, disk)
    async with host.daemon() as service:
        await until(lambda: _is_well(host, writer), "nobody watches the disk, so it goes on")
        assert (await run(service, writer, "echo yes")).stdout == b"yes\n"


async def test_failures_are_tried_again(host: FakeHost, disk: Disk) -> None:
    async with host.daemon(SETTINGS) as service:
        host.driver.inject("disk_use", error=DriverTransient("busy"), times=2)
        host.driver.inject("pause", error=DriverTransient("busy"), times=2)
        host.driver.inject("resume", error=DriverTransient("busy"), times=2)
        writer, _ = await frozen(host, service, disk)
        disk.free = 2 * LOW
        await until(lambda: _is_well(host, writer), "it goes on")
        assert (await run(service, writer, "echo yes")).stdout == b"yes\n"
