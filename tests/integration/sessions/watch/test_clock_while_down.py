"""The wall clock is set while no daemon runs, or is wrong when the machine starts: nothing is destroyed by that."""

from pathlib import Path

import pytest

from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.service import SessionService
from holdfast.sessions.watch import clock as clocks
from holdfast.sessions.watch.clock import DOUBT_SECONDS, ClockWatch
from support.house import Clock, House, new, tick

pytestmark = pytest.mark.anyio

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
TTL = 1800


class Machine:
    """Both clocks of a machine that can be switched off."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self._house = house
        self.steady = house.steady = Clock(1000.0)
        self.boots = 1
        monkeypatch.setattr(clocks, "boot_id", lambda: f"boot {self.boots}")

    def pass_(self, seconds: float) -> None:
        self._house.clock.now += seconds
        self.steady.now += seconds

    def set(self, seconds: float) -> None:
        self._house.clock.now += seconds

    def boot(self, off: float) -> None:
        self._house.clock.now += off
        self.steady.now = 20.0
        self.boots += 1


@pytest.fixture
def machine(house: House, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(house, monkeypatch)


async def left(house: House, service: SessionService, session_id: str) -> float:
    view = await service.get(session_id)
    assert (await house.row(session_id)).expires_at == pytest.approx(view.expires_at)
    return view.expires_at - house.clock.now


async def made(house: House, machine: Machine) -> tuple[str, str]:
    async with house.daemon() as service:
        session_id, asleep = await new(service, ttl=TTL), await new(service, ttl=TTL)
        await service.pause(asleep, PausedAs.FROZEN)
        machine.pass_(600)
        await tick(service)
    return session_id, asleep


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 30 * YEAR, -30 * YEAR], ids=str)
async def test_a_clock_that_is_set_while_the_daemon_is_down(house: House, machine: Machine, jump: float) -> None:
    ids = await made(house, machine)
    machine.pass_(100)
    machine.set(jump)
    async with house.daemon() as service:
        for _ in range(2):
            await tick(service)
            for id in ids:
                assert await left(house, service, id) == pytest.approx(TTL - 700), "the 100 s did pass"
        assert service.clock_is_doubtful
        machine.set(-jump)
        await tick(service)
        assert await left(house, service, ids[0]) == pytest.approx(TTL - 700)
        machine.pass_(TTL)
        await tick(service)
        for id in ids:
            assert await house.is_in(id, Status.DESTROYED)


async def test_time_that_passes_while_the_daemon_is_down_counts(house: House, machine: Machine) -> None:
    ids = await made(house, machine)
    machine.pass_(TTL)
    async with house.daemon() as service:
        assert not service.clock_is_doubtful
        await tick(service)
        for id in ids:
            assert await house.is_in(id, Status.DESTROYED)


@pytest.mark.parametrize("off", [HOUR, 30 * YEAR, -3 * YEAR], ids=str)
async def test_a_machine_that_was_off_and_the_clock_put_right_later(house: House, machine: Machine, off: float) -> None:
    """Nobody can tell how long it was off, so that does not count; a clock of 1970 or 2056 is put right later."""
    ids = await made(house, machine)
    machine.boot(off)
    async with house.daemon() as service:
        await tick(service)
        for id in ids:
            assert await left(house, service, id) == pytest.approx(TTL - 600)
        assert service.clock_is_doubtful == (not 0 < off < DOUBT_SECONDS), "after each start nothing would be pruned"
        machine.pass_(60)
        machine.set(HOUR - off)
        await tick(service)
        assert await left(house, service, ids[0]) == pytest.approx(TTL - 660)


async def test_a_kill_before_the_times_were_moved(
    house: House, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not done about a jump is done by the next daemon: the note comes last."""
    ids = await made(house, machine)
    machine.set(YEAR)

    async def dies(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(house.store, "move_times", dies)
        with pytest.raises(KeyboardInterrupt):
            async with house.daemon():
                pass
    async with house.daemon() as service:
        await tick(service)
        assert await left(house, service, ids[0]) == pytest.approx(TTL - 600)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"wall": "x", "steady": 1, "boot": ""}', '{"wall": 1}'])
def test_a_note_that_says_nothing(tmp_path: Path, content: str) -> None:
    note = tmp_path / "clock.json"
    note.write_text(content)
    watch = ClockWatch(Clock(5000.0), Clock(1.0), note)
    assert watch.look().jumped == 0.0
    watch.note()
    assert ClockWatch(Clock(5000.0 + DAY), Clock(1.0), note).look().jumped == pytest.approx(DAY)


async def test_a_use_that_was_noted_by_a_wrong_clock_gives_no_years(house: House, machine: Machine) -> None:
    ids = await made(house, machine)
    machine.boot(30 * YEAR)
    async with house.daemon() as service:
        await tick(service)
        machine.set(-30 * YEAR)
        await tick(service)
    async with house.daemon() as service:
        for id in ids:
            assert await left(house, service, id) <= TTL
