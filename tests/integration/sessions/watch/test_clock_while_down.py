"""The wall clock is set while no daemon runs, or is wrong when the machine starts: nothing is destroyed by that."""

from pathlib import Path

import pytest

from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.watch import clock as clocks
from holdfast.sessions.watch.clock import DOUBT_SECONDS, ClockWatch
from support.fake_host import Clock, FakeHost, new, tick

pytestmark = pytest.mark.anyio

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
TTL = 1800


class Machine:
    """Both clocks of a machine that can be switched off."""

    def __init__(self, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self._host = host
        self.steady = host.steady = Clock(1000.0)
        self.boots = 1
        monkeypatch.setattr(clocks, "boot_id", lambda: f"boot {self.boots}")

    def pass_(self, seconds: float) -> None:
        self._host.clock.now += seconds
        self.steady.now += seconds

    def set(self, seconds: float) -> None:
        self._host.clock.now += seconds

    def boot(self, off: float) -> None:
        self._host.clock.now += off
        self.steady.now = 20.0
        self.boots += 1


@pytest.fixture
def machine(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(host, monkeypatch)


async def left(host: FakeHost, service: SessionService, session_id: str) -> float:
    view = await service.get(session_id)
    assert (await host.row(session_id)).expires_at == pytest.approx(view.expires_at)
    return view.expires_at - host.clock.now


async def made(host: FakeHost, machine: Machine) -> tuple[str, str]:
    async with host.daemon() as service:
        session_id, asleep = await new(service, ttl=TTL), await new(service, ttl=TTL)
        await service.pause(asleep, PausedAs.FROZEN)
        machine.pass_(600)
        await tick(service)
    return session_id, asleep


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 30 * YEAR, -30 * YEAR], ids=str)
async def test_a_clock_that_is_set_while_the_daemon_is_down(host: FakeHost, machine: Machine, jump: float) -> None:
    ids = await made(host, machine)
    machine.pass_(100)
    machine.set(jump)
    async with host.daemon() as service:
        for _ in range(2):
            await tick(service)
            for id in ids:
                assert await left(host, service, id) == pytest.approx(TTL - 700), "the 100 s did pass"
        assert service.clock_is_doubtful
        machine.set(-jump)
        await tick(service)
        assert await left(host, service, ids[0]) == pytest.approx(TTL - 700)
        machine.pass_(TTL)
        await tick(service)
        for id in ids:
            assert await host.is_in(id, Status.DESTROYED)


async def test_time_that_passes_while_the_daemon_is_down_counts(host: FakeHost, machine: Machine) -> None:
    ids = await made(host, machine)
    machine.pass_(TTL)
    async with host.daemon() as service:
        assert not service.clock_is_doubtful
        await tick(service)
        for id in ids:
            assert await host.is_in(id, Status.DESTROYED)


@pytest.mark.parametrize("off", [HOUR, 30 * YEAR, -3 * YEAR], ids=str)
async def test_a_machine_that_was_off_and_the_clock_put_right_later(
    host: FakeHost, machine: Machine, off: float
) -> None:
    """Nobody can tell how long it was off, so that does not count; a clock of 1970 or 2056 is put right later."""
    ids = await made(host, machine)
    machine.boot(off)
    async with host.daemon() as service:
        await tick(service)
        for id in ids:
            assert await left(host, service, id) == pytest.approx(TTL - 600)
        assert service.clock_is_doubtful == (not 0 < off < DOUBT_SECONDS), "after each start nothing would be pruned"
        machine.pass_(60)
        machine.set(HOUR - off)
        await tick(service)
        assert await left(host, service, ids[0]) == pytest.approx(TTL - 660)


async def test_a_kill_before_the_times_were_moved(
    host: FakeHost, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not done about a jump is done by the next daemon: the note comes last."""
    ids = await made(host, machine)
    machine.set(YEAR)

    async def dies(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host.store, "move_times", dies)
        with pytest.raises(KeyboardInterrupt):
            async with host.daemon():
                pass
    async with host.daemon() as service:
        await tick(service)
        assert await left(host, service, ids[0]) == pytest.approx(TTL - 600)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"wall": "x", "steady": 1, "boot": ""}', '{"wall": 1}'])
def test_a_note_that_says_nothing(tmp_path: Path, content: str) -> None:
    note = tmp_path / "clock.json"
    note.write_text(content)
    watch = ClockWatch(Clock(5000.0), Clock(1.0), note)
    assert watch.look().jumped == 0.0
    watch.note()
    assert ClockWatch(Clock(5000.0 + DAY), Clock(1.0), note).look().jumped == pytest.approx(DAY)


async def test_a_use_that_was_noted_by_a_wrong_clock_gives_no_years(host: FakeHost, machine: Machine) -> None:
    ids = await made(host, machine)
    machine.boot(30 * YEAR)
    async with host.daemon() as service:
        await tick(service)
        machine.set(-30 * YEAR)
        await tick(service)
    async with host.daemon() as service:
        for id in ids:
            assert await left(host, service, id) <= TTL
