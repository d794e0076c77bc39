"""Whether a call may be made: is the model allowed, is anything left of the limits of its thread and its owner?"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from holdfast.broker.accounts import Account, Books, Hold, HoldResult, SpendingLimits
from holdfast.broker.models.limits.windows import Windows
from holdfast.broker.models.prices import Price


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused call. ``message`` says what to do; ``code`` is for programs, and for the metrics."""

    status: int
    code: str
    message: str
    retry_after: int | None = None


def is_allowed(account: Account, model_id: str) -> bool:
    return any(fnmatchcase(model_id, pattern) for pattern in account.allowed_models)


def has_budget(account: Account) -> bool:
    return account.limits.spend_usd is not None or account.owner_limits.spend_usd is not None


_AGAIN_SECONDS = 5
"""When to ask again where calls under way may use up what is left of a budget."""


class Gate:
    """Counts what it lets in. What is under way is not in the sum of tokens yet, so a few calls at the same time can
    overshoot that by what they use. Money is held for them in the books, as much as they may cost."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests = Windows(clock)
        self._tokens = Windows(clock)

    def enter(self, account: Account) -> Refusal | None:
        """Let a request in and count it, before anything is read; or return why not. There must be no await between the
        look and the count, or any number comes through at once."""
        refusal = self._rates(account)
        if refusal is None:
            for key, _limits, _whose in _both(account):
                self._requests.add(key)
        return refusal

    async def admit(
        self, account: Account, model_id: str | None, price: Price | None, books: Books, hold: Hold
    ) -> Refusal | None:
        """Hold the money until the call is over; or return why it may not be made. ``model_id`` is None for what
        is about no model."""
        refusal = self._model(account, model_id, price) if model_id is not None else None
        return refusal or await self._money(account, books, hold)

    def requests(self, account: Account) -> int:
        """Return the number of this thread's requests in the last minute."""
        return self._requests.total(_thread(account))

    def count_tokens(self, account: Account, tokens: int) -> None:
        for key, _limits, _whose in _both(account):
            self._tokens.add(key, tokens)

    def _model(self, account: Account, model_id: str, price: Price | None) -> Refusal | None:
        if not is_allowed(account, model_id):
            allowed = ", ".join(account.allowed_models) or "none"
            message = f"this thread may not use the model {model_id}; it may use {allowed}"
            return Refusal(403, "model_not_allowed", message)
        if price is None and has_budget(account):
            message = f"this thread has a budget, and no price is known for {model_id}; add it to the provider's models"
            return Refusal(403, "no_price", message)
        return None

    def _rates(self, account: Account) -> Refusal | None:
        for key, limits, whose in _both(account):
            most = limits.requests_per_minute
            if most is not None and self._requests.total(key) >= most:
                wait = _whole(self._requests.seconds_until_below(key, most))
                message = f"{whose} may make {most} requests a minute, and has; try again in {wait} s"
                return Refusal(429, "requests_per_minute", message, wait)
            most = limits.tokens_per_minute
            if most is not None and self._tokens.total(key) >= most:
                wait = _whole(self._tokens.seconds_until_below(key, most))
                message = f"{whose} may use {most} tokens a minute, and has; try again in {wait} s"
                return Refusal(429, "tokens_per_minute", message, wait)
        return None

    async def _money(self, account: Account, books: Books, hold: Hold) -> Refusal | None:
        if not has_budget(account):
            return None
        hold.is_open = True  # before it is: who is cancelled meanwhile does not know
        standing = await books.hold(account, hold)
        if standing is HoldResult.HELD:
            hold.is_open = hold.usd > 0
            return None
        hold.is_open = False
        thread, owner = account.limits.spend_usd, account.owner_limits.spend_usd
        match standing:
            case HoldResult.THREAD_SPENT:
                message = f"this thread has spent its budget of ${thread:g}; raise its limit, or start a new thread"
                return Refusal(403, "budget_spent", message)
            case HoldResult.OWNER_SPENT:
                message = f"the owner of this thread has spent this month's budget of ${owner:g}; raise it, or wait"
                return Refusal(403, "budget_spent", message)
        whose = "this thread" if standing is HoldResult.THREAD_HELD else "the owner of this thread"
        message = f"calls under way may use up what is left of the budget of {whose}; try again when they are done"
        return Refusal(429, "budget_under_way", message, _AGAIN_SECONDS)


def _both(account: Account) -> Sequence[tuple[str, SpendingLimits, str]]:
    owner = f"owner {account.owner}"
    return (
        (_thread(account), account.limits, "this thread"),
        (owner, account.owner_limits, "the owner of this thread"),
    )


def _thread(account: Account) -> str:
    return f"thread {account.thread_id}"


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))
