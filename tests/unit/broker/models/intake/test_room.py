"""How fast one sandbox may put large questions."""

from holdfast.broker.models.intake import room
from holdfast.broker.models.intake.room import BYTES_PER_SECOND, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_asks_too_much_waits_and_nobody_else() -> None:
    clock = Clock()
    paced = Pace(clock=clock)
    waits = [paced.wait("ses_1", BYTES_PER_SECOND) for _ in range(4)]
    assert waits == [0.0, 0.0, 1.0, 2.0]
    assert paced.wait("ses_2", BYTES_PER_SECOND) == 0.0
    clock.now += 4.0
    assert paced.wait("ses_1", BYTES_PER_SECOND) == 0.0


def test_who_asks_as_agents_do_never_waits() -> None:
    clock = Clock()
    paced = Pace(clock=clock)
    for _ in range(1000):
        assert paced.wait("ses_1", 2 << 20) == 0.0
        clock.now += 0.2


def test_those_who_are_done_are_forgotten() -> None:
    clock = Clock()
    paced = Pace(clock=clock)
    for number in range(room._MOST_KEYS * 3):
        paced.wait(f"ses_{number}", 1)
        clock.now += 1
    assert len(paced._busy_until) <= room._MOST_KEYS + 1
