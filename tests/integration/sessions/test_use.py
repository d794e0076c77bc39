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
from holdfast.sessions.use import calls
from holdfast.store import SessionStore
from support.house import DEFAULTS, House, new, run, tick, until
from support.waiting import linger

pytestmark = pytest.mark.anyio


def commands(house: House, session_id: str) -> int:
    """How many commands the sandbox has ever been given."""
    runner = house.world.sandboxes[session_id].runner
    assert runner is not None
    return len(runner._execs)


async def test_a_link_cut_in_the_middle_of_a_command(house: House) -> None:
    """The runner dials again; the command goes on and its result is delivered, once."""
    async with house.daemon() as service:
        session_id = await new(service)
        task = asyncio.create_task(run(service, session_id, "sleep 0.5; echo whole"))
        await until(lambda: house.busy(session_id), "the command runs")
        for _ in range(3):
            house.driver.cut_link(session_id)
            await linger()  # it is cut again while it dials, or when it has
        result = await task
        assert result.stdout == b"whole\n"
        assert commands(house, session_id) == 1
        assert (await service.exec_result(session_id, result.exec_id)) == result


async def test_a_caller_that_goes_away_leaves_the_command_running(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service)
        caller = asyncio.create_task(run(service, session_id, "sleep 0.2; echo done", "key"))
        await until(lambda: house.busy(session_id), "the command runs")
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert (await run(service, session_id, "sleep 0.2; echo done", "key")).stdout == b"done\n"
        assert commands(house, session_id) == 1
        assert (await run(service, session_id, "echo next")).stdout == b"next\n"


async def test_a_queued_caller_that_goes_away_is_never_run(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service)
        first = asyncio.create_task(run(service, session_id, "sleep 0.2"))
        await until(lambda: house.busy(session_id), "the first command runs")
        queued = asyncio.create_task(run(service, session_id, "echo never"))
        await linger()
        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
        await first
        assert (await run(service, session_id, "echo next")).stdout == b"next\n"
        assert commands(house, session_id) == 2


async def test_the_same_key_with_another_command(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service)
        await run(service, session_id, "echo a", "key")
        with pytest.raises(IdempotencyMismatch):
            await run(service, session_id, "echo b", "key")
        assert (await run(service, await new(service), "echo b", "key")).stdout == b"b\n"


async def test_a_frozen_runner(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes calls and never answers: the call ends by its deadline and the session can be destroyed."""
    monkeypatch.setattr(calls, "GRACE_SECONDS", 0.3)
    settings = dataclasses.replace(DEFAULTS, max_exec_timeout_ms=200, exec_timeout_ms=200)
    async with house.daemon(settings) as service:
        session_id = await new(service)
        house.driver.freeze(session_id)
        async with asyncio.timeout(30):
            with pytest.raises(SandboxLost):
                await run(service, session_id, "true")
        await service.destroy(session_id)
        await house.assert_clean()


async def test_the_daemon_stops_under_a_command(house: House) -> None:
    service = house.make_service()
    async with service.running():
        session_id = await new(service)
        task = asyncio.create_task(run(service, session_id, "sleep 0.5; echo later", "key"))
        await until(lambda: house.busy(session_id), "the command runs")
    with pytest.raises(Unavailable):
        await task
    async with house.daemon() as service:
        assert (await run(service, session_id, "sleep 0.5; echo later", "key")).stdout == b"later\n"
        assert commands(house, session_id) == 1


async def test_inputs_are_checked_first(house: House) -> None:
    async with house.daemon() as service:
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
        assert commands(house, session_id) == 0


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
async def test_files_of_every_size(house: House, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with house.daemon() as service:
        session_id = await new(service)
        await service.write_file(session_id, "/f", data, mode=None)
        assert await service.read_file(session_id, "/f", max_bytes=None) == (data, False)
        assert await service.read_file(session_id, "/f", max_bytes=size) == (data, False)
        if size:
            assert await service.read_file(session_id, "/f", max_bytes=size - 1) == (data[:-1], True)
        with pytest.raises(FileMissing):
            await service.read_file(session_id, "/missing", max_bytes=None)


async def test_a_file_over_the_limit_is_neither_written_nor_read(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service)
        with pytest.raises(TooLarge):
            await service.write_file(session_id, "/big", bytes(DEFAULTS.max_file_bytes + 1), mode=None)
        runner = house.world.sandboxes[session_id].runner
        assert runner is not None and "/big" not in runner.files
        runner.files["/big"] = bytes(DEFAULTS.max_file_bytes + 1)
        with pytest.raises(TooLarge):
            await service.read_file(session_id, "/big", max_bytes=None)
        part, truncated = await service.read_file(session_id, "/big", max_bytes=1 << 40)
        assert (len(part), truncated) == (DEFAULTS.max_file_bytes, True)


# -- time ------------------------------------------------------------------------------------------------------------


async def test_expiry_is_by_the_sessions_own_time(house: House) -> None:
    async with house.daemon() as service:
        short, long = await new(service, ttl=10), await new(service, ttl=1000)
        house.clock.now += 9
        await run(service, short, "true")
        view = await service.get(short)
        assert (view.expires_at, view.last_activity_at) == (house.clock.now + 10, house.clock.now)
        house.clock.now += 9.9
        await tick(service)
        assert await house.is_in(short, Status.ACTIVE)
        house.clock.now += 0.2
        await tick(service)
        row = await house.row(short)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.EXPIRED)
        assert await house.is_in(long, Status.ACTIVE)
        with pytest.raises(SessionGone, match="expired"):
            await run(service, short, "true")


async def test_a_running_command_keeps_it(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service, ttl=1)
        task = asyncio.create_task(run(service, session_id, "sleep 0.3; echo safe"))
        await until(lambda: house.busy(session_id), "the command runs")
        house.clock.now += 50
        await tick(service)
        assert (await task).stdout == b"safe\n"
        assert (await service.get(session_id)).expires_at == house.clock.now + 1


async def test_used_in_the_very_moment_of_the_sweep(house: House) -> None:
    """The sweep has saved what it knew; a use comes before it looks for overdue rows. The session stays."""

    class Racing(SessionStore):
        async def expired(self, **wanted: object) -> list[SessionRow]:
            found = await SessionStore.expired(self, **wanted)  # type: ignore[arg-type]  # passed on as it came
            await run(service, session_id, "true")
            return found

    store = Racing(house.store._database)
    async with house.daemon(store=store) as service:
        session_id = await new(service, ttl=10)
        house.clock.now += 11
        await tick(service)
        assert await house.is_in(session_id, Status.ACTIVE)
        assert (await run(service, session_id, "echo alive")).stdout == b"alive\n"


async def test_claimed_first_used_second(house: House) -> None:
    """Once it is claimed it is gone: a use that comes later is refused, and does not bring it back."""
    async with house.daemon() as service:
        session_id = await new(service, ttl=10)
        house.clock.now += 11
        house.driver.inject("destroy", hang=True)
        await service._tick()
        await until(lambda: house.count("destroy") == 1, "it is being destroyed")
        with pytest.raises(SessionGone):
            await run(service, session_id, "true")
        house.driver.release("destroy")
        await until(lambda: house.is_in(session_id, Status.DESTROYED), "it is gone")


async def test_asked_to_destroy_what_is_expiring(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service, ttl=10)
        house.clock.now += 11
        house.driver.inject("destroy", hang=True)
        await service._tick()
        await until(lambda: house.count("destroy") == 1, "it is being destroyed")
        caller = asyncio.create_task(service.destroy(session_id))
        await linger()
        house.driver.release("destroy")
        await caller
        row = await house.row(session_id)
        assert (row.status, row.reason) == (Status.DESTROYED, Reason.EXPIRED)


async def test_activity_outlives_the_daemon(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service, ttl=10)
        house.clock.now += 8
        await run(service, session_id, "true")
    house.clock.now += 8
    async with house.daemon() as service:
        await tick(service)
        assert await house.is_in(session_id, Status.ACTIVE)


async def test_a_crashed_session_expires_too(house: House) -> None:
    """Nothing is kept for ever because nobody cared to destroy it."""
    async with house.daemon() as service:
        session_id = await new(service, ttl=10)
        await house.driver.kill(session_id)
        await until(lambda: house.is_in(session_id, Status.ERROR), "the crash is noticed")
        house.clock.now += 11
        await tick(service)
        assert await house.is_in(session_id, Status.DESTROYED)
        await house.assert_clean()


async def test_old_rows_are_forgotten(house: House) -> None:
    async with house.daemon() as service:
        session_id = await new(service)
        await service.destroy(session_id)
        house.clock.now += DEFAULTS.keep_destroyed_seconds - 1
        await tick(service)
        assert (await service.get(session_id)).status is Status.DESTROYED
        house.clock.now += 2
        await tick(service)
        with pytest.raises(SessionNotFound):
            await service.get(session_id)


async def test_a_store_that_fails_for_a_while_loses_no_activity(house: House) -> None:
    class Flaky(SessionStore):
        broken = False

        async def touch(self, rows: Sequence[tuple[str, float, float, str]]) -> None:
            if self.broken:
                raise Unavailable("the database is away")
            await SessionStore.touch(self, rows)

    store = Flaky(house.store._database)
    async with house.daemon(store=store) as service:
        session_id = await new(service, ttl=10)
        house.clock.now += 8
        await run(service, session_id, "true")
        store.broken = True
        house.clock.now += 8
        await tick(service)
        assert await house.is_in(session_id, Status.ACTIVE), "nothing is reaped by what could not be written down"
        store.broken = False
        await tick(service)
        assert await house.is_in(session_id, Status.ACTIVE)
