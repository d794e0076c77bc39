"""Sliding windows, breakers and alarms: what happened in which time."""

from holdfast.broker.accounts import Account, SpendingLimits, Spent
from holdfast.broker.models.alarms import MANY_REFUSALS, QUIET_SECONDS, Alarms
from holdfast.broker.models.asking.breaker import Breaker, BreakerSettings
from holdfast.broker.models.limits.windows import Windows


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_window_slides() -> None:
    clock = Clock()
    windows = Windows(clock)
    assert windows.total("a") == 0 and windows.seconds_until_below("a", 1) == 0.0
    windows.add("a", 5)
    clock.now += 20
    assert windows.add("a", 3) == 8
    assert windows.total("b") == 0
    assert windows.seconds_until_below("a", 8) == 40.0
    assert windows.seconds_until_below("a", 3) == 60.0
    assert windows.seconds_until_below("a", 9) == 0.0
    clock.now += 40
    assert windows.total("a") == 3
    clock.now += 20
    assert windows.total("a") == 0


def test_a_limit_of_nothing_is_never_below() -> None:
    assert Windows(Clock()).seconds_until_below("a", 0) == 60.0
    windows = Windows(Clock())
    windows.add("a")
    assert windows.seconds_until_below("a", 0) == 60.0


def test_a_breaker() -> None:
    clock = Clock()
    breaker = Breaker(BreakerSettings(failures=3, window_seconds=60, open_seconds=30), clock=clock)
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(2):
        breaker.failed()
    assert breaker.lets_through() and not breaker.is_open, "only failures in a row count"
    breaker.failed()
    assert breaker.is_open and not breaker.lets_through() and breaker.seconds_left() == 30
    clock.now += 30
    assert breaker.lets_through()
    assert not breaker.lets_through(), "one call tries it"
    breaker.failed()
    assert breaker.seconds_left() == 30
    clock.now += 30
    assert breaker.lets_through()
    clock.now += 31
    assert breaker.lets_through(), "a probe of which nobody has heard again is replaced"
    breaker.succeeded()
    assert breaker.lets_through() and breaker.lets_through() and not breaker.is_open


def test_failures_that_are_far_apart_do_not_open_it() -> None:
    clock = Clock()
    breaker = Breaker(BreakerSettings(failures=3, window_seconds=60), clock=clock)
    for _ in range(5):
        breaker.failed()
        clock.now += 31
    assert not breaker.is_open


def account(thread: float | None = None, owner: float | None = None) -> Account:
    return Account(
        "t", "o", "c", None, limits=SpendingLimits(spend_usd=thread), owner_limits=SpendingLimits(spend_usd=owner)
    )


def test_each_share_of_a_budget_is_told_once() -> None:
    alarms = Alarms(100)
    told = []
    for cents in range(0, 120, 10):
        events = alarms.spent(account(thread=1.0), Spent(cents / 100, 0.0), 0.1)
        told += [(cents, event.data["message"]) for event in events]
    assert told == [
        (80, "80% of this thread's budget of $1 is spent ($0.80)"),
        (100, "100% of this thread's budget of $1 is spent ($1.00)"),
    ]


def test_one_call_can_cross_both_and_a_new_month_begins_anew() -> None:
    alarms = Alarms(100)
    assert len(alarms.spent(account(owner=1.0), Spent(0.0, 1.5), 1.4)) == 2
    assert alarms.spent(account(owner=1.0), Spent(0.0, 0.1), 0.1) == []
    assert len(alarms.spent(account(owner=1.0), Spent(0.0, 0.85), 0.1)) == 1
    assert alarms.spent(account(), Spent(5.0, 5.0), 5.0) == []


def test_refusals_and_rates_are_told_once_in_a_while() -> None:
    clock = Clock()
    alarms = Alarms(3, clock=clock)
    told = [bool(alarms.refused(account(), "no")) for _ in range(3 * MANY_REFUSALS)]
    assert told.index(True) == MANY_REFUSALS - 1 and told.count(True) == 1
    assert alarms.called(account(), 3) == []
    assert len(alarms.called(account(), 4)) == 1 and alarms.called(account(), 5) == []
    clock.now += QUIET_SECONDS
    assert len(alarms.called(account(), 4)) == 1
