"""What sessions use, and who hears of kills for want of memory; on a fake machine."""

import asyncio

import pytest
from structlog.testing import capture_logs

from holdfast.callers.types import ROOT
from holdfast.drivers.base import Capabilities, SandboxStats
from holdfast.drivers.fake.driver import FakeDriver
from holdfast.errors import DriverTransient, SandboxNotFound, SessionGone, SessionNotFound, WrongState
from holdfast.records.limits import Network
from holdfast.records.machine import Status
from support.fake_host import FakeHost, new, run, tick, until

pytestmark = pytest.mark.anyio
USED = SandboxStats(
    cpu_seconds=1.5,
    memory_bytes=100,
    memory_peak_bytes=200,
    processes=3,
    oom_kills=0,
    disk_bytes=10,
    disk_limit_bytes=1000,
)


async def test_facts_and_the_limits_that_are_enforced(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.world.sandboxes[session_id].stats = USED
        host.clock.now += 5
        stats = await service.stats(session_id)
        assert (stats.cpu_seconds, stats.memory_bytes, stats.memory_peak_bytes) == (1.5, 100, 200)
        assert (stats.disk_bytes, stats.disk_limit_bytes, stats.processes) == (10, 1000, 3)
        assert (stats.cpu_limit, stats.memory_limit_bytes, stats.processes_limit) == (None, None, None)
        assert stats.uptime_seconds == 5
        host.driver._capabilities = Capabilities(
            isolation=False, memory_limit=True, cpu_limit=True, pids_limit=True, networks=frozenset(Network)
        )
        stats = await service.stats(session_id)
        assert (stats.cpu_limit, stats.memory_limit_bytes, stats.processes_limit) == (1, 64 << 20, 64)


async def test_looking_is_not_using(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 11
        await service.stats(session_id)
        await service.stats_of((await service.list(status=None, limit=10, cursor=None, caller=ROOT))[0])
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYED)


async def test_what_cannot_be_looked_at(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("stats", error=DriverTransient("not now"))
        with pytest.raises(DriverTransient):
            await service.stats(session_id)
        with pytest.raises(SessionNotFound):
            await service.stats("ses_none")
        sandbox = host.world.sandboxes.pop(session_id)
        with pytest.raises(SandboxNotFound):
            await service.stats(session_id)
        host.world.sandboxes[session_id] = sandbox
        await host.driver.kill(session_id)
        await until(lambda: host.is_in(session_id, Status.ERROR), "it is found dead")
        with pytest.raises(WrongState):
            await service.stats(session_id)
        await service.destroy(session_id)
        with pytest.raises(SessionGone):
            await service.stats(session_id)


async def test_a_list_with_stats(host: FakeHost) -> None:
    """Of the active ones; one that cannot be looked at costs the others nothing."""
    async with host.daemon() as service:
        used, odd, gone = [await new(service) for _ in range(3)]
        host.world.sandboxes[used].stats = USED
        await service.destroy(gone)
        host.driver.inject("stats", error=DriverTransient("not now"))
        rows, _ = await service.list(status=list(Status), limit=10, cursor=None, caller=ROOT)
        assert {row.id for row in rows} == {used, odd, gone}
        found = await service.stats_of(rows)
        assert len(found) == 1 and set(found) <= {used, odd}
        rows, more = await service.list(status=None, limit=1, cursor=None, caller=ROOT)
        assert more is not None and len(rows) == 1 and set(await service.stats_of(rows)) == {rows[0].id}


async def assert_told(host: FakeHost, session_id: str, *kills: int) -> None:
    """The events tell of these kills, and of no others."""

    async def told() -> list[object]:
        page = await host.store.events.page(after=None, limit=100, session_id=session_id, kinds=["oom"])
        return [event.data["kills"] for event in page.events]

    async def are_told() -> bool:
        return len(await told()) >= len(kills)

    await until(are_told, "the kills are told")
    assert await told() == [*kills]


async def test_a_kill_is_told_on_the_command_that_suffered_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        assert not (await run(service, session_id, "true")).oom_killed
        with capture_logs() as logged:
            running = asyncio.create_task(run(service, session_id, "sleep 0.2; true", "key"))
            await until(lambda: host.busy(session_id), "the command runs")
            host.driver.oom_kill(session_id)
            result = await running
        assert (result.exit_code, result.oom_killed) == (0, True)
        assert [(line["session_id"], line["kills"]) for line in logged if line["event"] == "session.oom"] == [
            (session_id, 1)
        ]
        await assert_told(host, session_id, 1)
        assert (await service.exec_result(session_id, result.exec_id)) == result
        assert (await run(service, session_id, "sleep 0.2; true", "key")) == result
        assert not (await run(service, session_id, "true")).oom_killed
        assert (await service.stats(session_id)).oom_kills == 1


async def test_a_kill_in_the_background_is_told_on_the_next_tick(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.oom_kill(session_id)
        await tick(service)
        await assert_told(host, session_id, 1)
        assert not (await run(service, session_id, "true")).oom_killed


async def test_after_a_restart_a_killed_command_is_believed(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        first = asyncio.create_task(run(service, session_id, "sleep 0.3; exit 137", "key"))
        await until(lambda: host.busy(session_id), "the command runs")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    host.driver.oom_kill(session_id)
    async with host.daemon() as service:
        live = service._sessions.live(session_id)
        assert live is not None
        runner = host.world.sandboxes[session_id].runner
        assert runner is not None
        [exec_id] = runner._execs
        assert (await service.exec_result(session_id, exec_id)).oom_killed


async def test_counters_are_closed_with_their_sessions(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    open_now = [0]
    make = FakeDriver.oom_counter

    def counted(driver: FakeDriver, handle: str) -> object:
        counter = make(driver, handle)  # type: ignore[arg-type]  # a handle is a text
        assert counter is not None
        open_now[0] += 1

        def close() -> None:
            open_now[0] -= 1

        monkeypatch.setattr(counter, "close", close)
        return counter

    monkeypatch.setattr(FakeDriver, "oom_counter", counted)
    async with host.daemon() as service:
        first, _second = await new(service), await new(service)
        assert open_now == [2]
        await service.destroy(first)
        assert open_now == [1]
    assert open_now == [0]
