"""Commands, files and time: what is in use is not reaped, what is cut off comes again, and each answer comes once."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from holdfast.errors import (
    BadInput,
    FileMissing,
    IdempotencyMismatch,
    SandboxLost,
    SessionGone,
    SessionNotFound,
    TooLarge,
    Unavailable,
)
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.types import ExecRequest
from holdfast.sessions.use import execs
from holdfast.store import SessionStore
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio


def commands(host: FakeHost, session_id: str) -> int:
    """How many commands the sandbox has ever been given."""
    runner = host.world.sandboxes[session_id].runner
    assert runner is not None
    return len(runner._execs)


async def test_a_link_cut_in_the_middle_of_a_command(host: FakeHost) -> None:
    """The runner dials again; the command goes on and its result is delivered, once."""
    async with host.daemon() as service:
        session_id = await new(service)
        task = asyncio.create_task(run(service, session_id, "sleep 0.5; echo whole"))
        await until(lambda: host.busy(session_id), "the command runs")
        for _ in range(3):
            host.driver.cut_link(session_id)
            await linger()  # it is cut again while it dials, or when it has
        result = await task
        assert result.stdout == b"whole\n"
        assert commands(host, session_id) == 1
        assert (await service.exec_result(session_id, result.exec_id)) == result


async def test_a_caller_that_goes_away_leaves_the_command_running(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        caller = asyncio.create_task(run(service, session_id, "sleep 0.2; echo done", "key"))
        await until(lambda: host.busy(session_id), "the command runs")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert (await run(service, session_id, "sleep 0.2; echo done", "key")).stdout == b"done\n"
        assert commands(host, session_id) == 1
        assert (await run(service, session_id, "echo next")).stdout == b"next\n"


async def test_a_queued_caller_that_goes_away_is_never_run(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        first = asyncio.create_task(run(service, session_id, "sleep 0.2"))
        await until(lambda: host.busy(session_id), "the first command runs")
        queued = asyncio.create_task(run(service, session_id, "echo never"))
        await linger()
        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
        await first
        assert (await run(service, session_id, "echo next")).stdout == b"next\n"
        assert commands(host, session_id) == 2


async def test_the_same_key_with_another_command(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await run(service, session_id, "echo a", "key")
        with pytest.raises(IdempotencyMismatch):
            await run(service, session_id, "echo b", "key")
        assert (await run(service, await new(service), "echo b", "key")).stdout == b"b\n"


async def test_a_frozen_runner(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes calls and never answers: the call ends by its deadline and the session can be destroyed."""
    monkeypatch.setattr(execs, "GRACE_SECONDS", 0.3)
    settings = dataclasses.replace(DEFAULTS, max_exec_timeout_ms=200, exec_timeout_ms=200)
    async with host.daemon(settings) as service:
        session_id = await new(service)
        host.driver.freeze(session_id)
        async with asyncio.timeout(30):
            with pytest.raises(SandboxLost):
                await run(service, session_id, "true")
        await service.destroy(session_id)
        await host.assert_clean()


async def test_the_daemon_stops_under_a_command(host: FakeHost) -> None:
    service = host.make_service()
    async with service.running():
        session_id = await new(service)
        task = asyncio.create_task(run(service, session_id, "sleep 0.5; echo later", "key"))
        await until(lambda: host.busy(session_id), "the command runs")
    with pytest.raises(Unavailable):
        await task
    async with host.daemon() as service:
        assert (await run(service, session_id, "sleep 0.5; echo later", "key")).stdout == b"later\n"
        assert commands(host, session_id) == 1


async def test_inputs_are_checked_first(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        for timeout_ms in (0, 20_001):
            with pytest.raises(BadInput, match="timeout_ms"):
                await service.exec(session_id, ExecRequest("true", timeout_ms=timeout_ms), idempotency_key=None)
        for path in ("relative", "/nul\0", ""):
            with pytest.raises(BadInput):
                await service.read_file(session_id, path, max_bytes=None)
            with pytest.raises(BadInput):
                await service.write_file(session_id, path, b"", mode=None)
        with pytest.raises(SessionNotFound):
            await run(service, "ses_never", "true")
        assert commands(host, session_id) == 0


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
async def test_files_of_every_size(host: FakeHost, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with host.daemon() as service:
        session_id = await new(service)
        await service.write_file(session_id, "/f", data, mode=None)
        assert await service.read_file(session_id, "/f", max_bytes=None) == (data, False)
        assert await service.read_file(session_id, "/f", max_bytes=size) == (data, False)
        if size:
            assert await service.read_file(session_id, "/f", max_bytes=size - 1) == (data[:-1], True)
        with pytest.raises(FileMissing):
            await service.read_file(session_id, "/missing", max_bytes=None)


async def test_a_file_over_the_limit_is_neither_written_nor_read(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        with pytest.raises(TooLarge):
            await service.write_file(session_id, "/big", bytes(DEFAULTS.max_file_bytes + 1), mode=None)
        runner = host.world.sandboxes[session_id].runner
        assert runner is not None and "/big" not in runner.files
        runner.files["/big"] = bytes(DEFAULTS.max_file_bytes + 1)
        with pytest.raises(TooLarge):
            await service.read_file(session_id, "/big", max_bytes=None)
        part, truncated = await service.read_file(session_id, "/big", max_bytes=1 << 40)
        assert (len(part), truncated) == (DEFAULTS.max_file_bytes, True)


# -- time ------------------------------------------------------------------------------------------------------------


async def test_expiry_is_by_the_sessions_own_time(host: FakeHost) -> None:
    async with host.daemon() as service:
        short, long = await new(service, ttl=10), await new(service, ttl=1000)
        host.clock.now += 9
        await run(service, short, "true")
        view = await service.get(short)
        assert (view.expires_at, view.last_activity_at) == (host.clock.now + 10, host.clock.now)
        host.clock.now += 9.9
        await tick(service)
        assert await host.is_in(short, Status.ACTIVE)
        host.clock.now += 0.2
        await tick(service)
        row = await host.row(short)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.EXPIRED)
        assert await host.is_in(long, Status.ACTIVE)
        with pytest.raises(SessionGone, match="expired"):
            await run(service, short, "true")


async def test_a_running_command_keeps_it(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=1)
        task = asyncio.create_task(run(service, session_id, "sleep 0.3; echo safe"))
        await until(lambda: host.busy(session_id), "the command runs")
        host.clock.now += 50
        await tick(service)
        assert (await task).stdout == b"safe\n"
        assert (await service.get(session_id)).expires_at == host.clock.now + 1


async def test_used_in_the_very_moment_of_the_sweep(host: FakeHost) -> None:
    """The sweep has saved what it knew; a use comes before it looks for overdue rows. The session stays."""

    class Racing(SessionStore):
        async def expired(self, **wanted: object) -> list[SessionRow]:
            found = await SessionStore.expired(self, **wanted)  # type: ignore[arg-type]  # passed on as it came
            await run(service, session_id, "true")
            return found

    store = Racing(host.store._database)
    async with host.daemon(store=store) as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 11
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo alive")).stdout == b"alive\n"


async def test_claimed_first_used_second(host: FakeHost) -> None:
    """Once it is claimed it is gone: a use that comes later is refused, and does not bring it back."""
    async with host.daemon() as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 11
        host.driver.inject("destroy", hang=True)
        await service._housekeeping.tick()
        await until(lambda: host.count("destroy") == 1, "it is being destroyed")
        with pytest.raises(SessionGone):
            await run(service, session_id, "true")
        host.driver.release("destroy")
        await until(lambda: host.is_in(session_id, Status.DESTROYED), "it is gone")


async def test_asked_to_destroy_what_is_expiring(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 11
        host.driver.inject("destroy", hang=True)
        await service._housekeeping.tick()
        await until(lambda: host.count("destroy") == 1, "it is being destroyed")
        caller = asyncio.create_task(service.destroy(session_id))
        await linger()
        host.driver.release("destroy")
        await caller
        row = await host.row(session_id)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.EXPIRED)


async def test_activity_outlives_the_daemon(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 8
        await run(service, session_id, "true")
    host.clock.now += 8
    async with host.daemon() as service:
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE)


async def test_a_crashed_session_expires_too(host: FakeHost) -> None:
    """Nothing is kept for ever because nobody cared to destroy it."""
    async with host.daemon() as service:
        session_id = await new(service, ttl=10)
        await host.driver.kill(session_id)
        await until(lambda: host.is_in(session_id, Status.ERROR), "the crash is noticed")
        host.clock.now += 11
        await tick(service)
        assert await host.is_in(session_id, Status.DESTROYED)
        await host.assert_clean()


async def test_old_rows_are_forgotten(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await service.destroy(session_id)
        host.clock.now += DEFAULTS.keep_destroyed_seconds - 1
        await tick(service)
        assert (await service.get(session_id)).status is Status.DESTROYED
        host.clock.now += 2
        await tick(service)
        with pytest.raises(SessionNotFound):
            await service.get(session_id)


async def test_a_store_that_fails_for_a_while_loses_no_activity(host: FakeHost) -> None:
    class Flaky(SessionStore):
        broken = False

        async def touch(self, rows: Sequence[tuple[str, float, float, str]]) -> None:
            if self.broken:
                raise Unavailable("the database is away")
            await SessionStore.touch(self, rows)

    store = Flaky(host.store._database)
    async with host.daemon(store=store) as service:
        session_id = await new(service, ttl=10)
        host.clock.now += 8
        await run(service, session_id, "true")
        store.broken = True
        host.clock.now += 8
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE), "nothing is reaped by what could not be written down"
        store.broken = False
        await tick(service)
        assert await host.is_in(session_id, Status.ACTIVE)
