"""Raises alarms about unusual use: on the thread's stream of events, and in the log."""

import time
from collections.abc import Callable, Iterator

from holdfast.broker.accounts import Account, Spent
from holdfast.broker.models.limits.windows import Windows
from holdfast.concurrency import Bounded
from holdfast.vocabulary.turn_events import Kind, TurnEvent

SHARES = (0.8, 1.0)
"""Of a budget."""
MANY_REFUSALS = 10
"""In a minute."""
QUIET_SECONDS = 600.0
"""An alarm is not repeated within this time."""
_MOST_KEYS = 20_000


class Alarms:
    """Decides about alarms. Each method returns the events to send, usually none."""

    def __init__(self, calls_per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_calls = calls_per_minute
        self._clock = clock
        self._refusals = Windows(clock)
        self._rung = Bounded[str, float](_MOST_KEYS)
        self._spent = Bounded[str, float](_MOST_KEYS)

    def refused(self, account: Account, message: str) -> list[TurnEvent]:
        if self._refusals.add(account.thread_id) < MANY_REFUSALS or not self._may_ring("refused", account):
            return []
        return [_alert("refused", f"{MANY_REFUSALS} calls to models were refused within a minute; the last: {message}")]

    def called(self, account: Account, calls: int) -> list[TurnEvent]:
        if calls <= self._most_calls or not self._may_ring("rate", account):
            return []
        return [_alert("rate", f"{calls} calls to models within a minute; more than {self._most_calls} is unusual")]

    def spent(self, account: Account, spent: Spent, cost: float) -> list[TurnEvent]:
        """Report a call that cost this much, if it crosses a share of a budget."""
        thread, owner = f"thread {account.thread_id}", f"owner {account.owner}"
        return [
            *self._crossed(thread, "this thread's budget", account.limits.spend_usd, spent.thread_usd, cost),
            *self._crossed(
                owner, "this month's budget of its owner", account.owner_limits.spend_usd, spent.owner_usd, cost
            ),
        ]

    def _crossed(self, key: str, what: str, limit: float | None, now: float, cost: float) -> Iterator[TurnEvent]:
        if limit is None:
            return
        # What was known last, since several calls may have ended meanwhile; a new month begins below.
        before = min(self._spent.get(key, now - cost), now)
        self._spent[key] = now
        for share in SHARES:
            if before < share * limit <= now:
                yield _alert("budget", f"{share:.0%} of {what} of ${limit:g} is spent (${now:.2f})")

    def _may_ring(self, what: str, account: Account) -> bool:
        key = f"{what} {account.thread_id}"
        now = self._clock()
        if now - self._rung.get(key, -QUIET_SECONDS) < QUIET_SECONDS:
            return False
        self._rung[key] = now
        return True


def _alert(what: str, message: str) -> TurnEvent:
    return TurnEvent(Kind.USAGE_ALERT, {"what": what, "message": message})
