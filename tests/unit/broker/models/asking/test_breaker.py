"""When a provider is left alone, and when it is tried again."""

from holdfast.broker.models.asking.breaker import Breaker, BreakerSettings


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def a_breaker() -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(BreakerSettings(failures=3, window_seconds=60.0, open_seconds=30.0), clock=clock), clock


def test_failures_in_a_row_open_it_and_one_call_tries() -> None:
    breaker, clock = a_breaker()
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(3):
        assert breaker.lets_through()
        breaker.failed()
    assert not breaker.lets_through() and breaker.seconds_left() == 30.0
    clock.now += 30
    assert [breaker.lets_through(), breaker.lets_through()] == [True, False]
    breaker.failed()
    assert not breaker.lets_through()
    clock.now += 30
    assert breaker.lets_through()
    breaker.succeeded()
    assert not breaker.is_open and breaker.lets_through()


def test_a_probe_that_shows_nothing_leaves_it_to_the_next_call() -> None:
    """Whose agent has hung up, say, or whose model alone is busy."""
    breaker, clock = a_breaker()
    for _ in range(3):
        breaker.failed()
    breaker.undecided()
    assert not breaker.lets_through(), "its time is not up by that"
    clock.now += 30
    assert breaker.lets_through()
    breaker.undecided()
    assert breaker.is_open and [breaker.lets_through(), breaker.lets_through()] == [True, False]


def test_failures_far_apart_do_not() -> None:
    breaker, clock = a_breaker()
    for _ in range(10):
        breaker.failed()
        clock.now += 31
    assert not breaker.is_open


def test_what_only_one_thread_sees_may_be_its_own_fault() -> None:
    breaker, _ = a_breaker()
    for _ in range(100):
        breaker.failed("thr_1")
    breaker.failed()
    breaker.failed()
    assert not breaker.is_open, "two are not three"
    breaker.failed("thr_2")
    assert breaker.is_open
