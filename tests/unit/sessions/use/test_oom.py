"""Whom a kill for want of memory is told to: once to the operator, and to every command that ran meanwhile."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.drivers.base import OomCounter
from holdfast.sessions.session import _REMEMBERED, OomWatch


class Kernel(OomCounter):
    def __init__(self, kills: int = 0) -> None:
        self.kills = kills
        self.closed = 0

    def read(self) -> int:
        return self.kills

    def close(self) -> None:
        self.closed += 1


def watch(kernel: Kernel | None) -> tuple[OomWatch, list[int]]:
    told: list[int] = []
    return OomWatch(kernel, told.append), told


def test_a_kill_during_a_command() -> None:
    kernel = Kernel()
    oom, told = watch(kernel)
    oom.begin("a")
    kernel.kills += 2
    assert oom.end("a", 0), "also if the command hid it, as `hog; true` does"
    assert oom.end("a", 0), "the same answer when asked again"
    assert told == [2]
    oom.begin("b")
    assert not oom.end("b", 137), "killed by something else"


def test_a_kill_between_two_commands_is_told_and_blamed_on_neither() -> None:
    kernel = Kernel()
    oom, told = watch(kernel)
    oom.begin("a")
    assert not oom.end("a", 0)
    kernel.kills += 1
    oom.begin("b")
    assert not oom.end("b", 1)
    assert told == [1]


def test_commands_that_run_at_once_share_the_verdict() -> None:
    kernel = Kernel()
    oom, told = watch(kernel)
    oom.begin("long")
    oom.begin("short")
    kernel.kills += 1
    assert oom.end("short", 0) and oom.end("long", 137)
    assert told == [1]


def test_a_command_that_is_joined_keeps_its_first_beginning() -> None:
    kernel = Kernel()
    oom, _ = watch(kernel)
    oom.begin("a")
    kernel.kills += 1
    oom.begin("a")
    assert oom.end("a", 137)


def test_kills_before_the_daemon_came() -> None:
    """They were told by another one. A command of his that was killed is believed to have been killed by them."""
    oom, told = watch(Kernel(3))
    oom.look()
    assert told == []
    assert oom.end("of another daemon", 137)
    assert not oom.end("another of his", 1)


def test_without_a_counter_nothing_is_claimed() -> None:
    oom, told = watch(None)
    oom.begin("a")
    assert not oom.end("a", 137)
    assert oom.look() == 0 and told == []
    oom.close()


def test_it_closes_its_counter_once() -> None:
    kernel = Kernel()
    oom, _ = watch(kernel)
    oom.close()
    oom.close()
    oom.begin("a")
    assert not oom.end("a", 0)
    assert kernel.closed == 1


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "kill"]), st.integers(0, 500)), max_size=600))
def test_memory_is_bounded_and_every_kill_is_told_once(steps: list[tuple[str, int]]) -> None:
    kernel = Kernel()
    oom, told = watch(kernel)
    for step, number in steps:
        if step == "begin":
            oom.begin(str(number))
        elif step == "end":
            oom.end(str(number), 137)
        else:
            kernel.kills += 1
    oom.look()
    assert sum(told) == kernel.kills
    assert len(oom._begun) <= _REMEMBERED and len(oom._verdicts) <= _REMEMBERED
