"""Who is told when use is not as it should be: the thread, on its stream of events, and the log."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from holdfast.broker.accounts import Account, Spent
from holdfast.broker.models.limits.windows import Windows
from holdfast.vocabulary.turn_events import Kind, TurnEvent

SHARES = (0.8, 1.0)
"""Of a budget."""
MANY_REFUSALS = 10
"""In a minute."""
QUIET_SECONDS = 600.0
"""An alarm is not repeated within this time."""
_MOST_KEYS = 20_000


class Alarms:
    """Each method returns the events to be told, most often none."""

    def __init__(self, calls_per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_calls = calls_per_minute
        self._clock = clock
        self._refusals = Windows(clock)
        self._rung: OrderedDict[str, float] = OrderedDict()
        self._spent: OrderedDict[str, float] = OrderedDict()

    def refused(self, account: Account, message: str) -> list[TurnEvent]:
        if self._refusals.add(account.thread_id) < MANY_REFUSALS or not self._may_ring("refused", account):
            return []
        return [_alert("refused", f"{MANY_REFUSALS} calls to models were refused within a minute; the last: {message}")]

    def called(self, account: Account, calls: int) -> list[TurnEvent]:
        if calls <= self._most_calls or not self._may_ring("rate", account):
            return []
        return [_alert("rate", f"{calls} calls to models within a minute; more than {self._most_calls} is unusual")]

    def spent(self, account: Account, spent: Spent, cost: float) -> list[TurnEvent]:
        """After a call that cost this much. Of each share of a budget, the call that crosses it is told."""
        thread, owner = account.limits.spend_usd, account.owner_limits.spend_usd
        events = []
        if thread is not None:
            told = self._crossed(f"thread {account.thread_id}", thread, spent.thread_usd, cost)
            events += [_budget("this thread's budget", thread, spent.thread_usd, share) for share in told]
        if owner is not None:
            told = self._crossed(f"owner {account.owner}", owner, spent.owner_usd, cost)
            events += [_budget("this month's budget of its owner", owner, spent.owner_usd, share) for share in told]
        return events

    def _crossed(self, key: str, limit: float, now: float, cost: float) -> Iterator[float]:
        # What was known last, since several calls may have ended meanwhile; a new month begins below.
        before = min(_remember(self._spent, key, now, now - cost), now)
        return (share for share in SHARES if before < share * limit <= now)

    def _may_ring(self, what: str, account: Account) -> bool:
        key = f"{what} {account.thread_id}"
        now = self._clock()
        if now - self._rung.get(key, -QUIET_SECONDS) < QUIET_SECONDS:
            return False
        _remember(self._rung, key, now, now)
        return True


def _remember(known: OrderedDict[str, float], key: str, value: float, default: float) -> float:
    """Keeps the new value, and returns the one before."""
    before = known.get(key, default)
    known[key] = value
    known.move_to_end(key)
    if len(known) > _MOST_KEYS:
        known.popitem(last=False)
    return before


def _budget(what: str, limit: float, spent: float, share: float) -> TurnEvent:
    return _alert("budget", f"{share:.0%} of {what} of ${limit:g} is spent (${spent:.2f})")


def _alert(what: str, message: str) -> TurnEvent:
    return TurnEvent(Kind.USAGE_ALERT, {"what": what, "message": message})
