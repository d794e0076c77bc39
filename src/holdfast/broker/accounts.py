"""Who pays for a call to a model: the seam between the proxy, which sees calls, and the threads, which they belong to.

The proxy asks ``Books`` before and after each call. A sandbox is known by its link, so it can only ever reach the
account of its own thread, whatever its programs send.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from holdfast.vocabulary.turn_events import TurnEvent


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """The limits of one thread, or of all threads of one API key's owner together. None means no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    spend_usd: float | None = None
    """In all, for a thread; per calendar month (UTC), for an owner."""


@dataclass(frozen=True, slots=True)
class Account:
    """The thread that a call is counted for, and what its calls may do."""

    thread_id: str
    owner: str
    channel: str
    turn_id: str | None
    """The turn that is running in the channel; None between turns (an agent makes titles then, say)."""
    allowed_models: Sequence[str] = ("*",)
    """Patterns of ids, with ``*``."""
    preferences: Sequence[str] = ()
    """Ids of models to try, in this order, where the one that was asked for cannot answer."""
    limits: SpendingLimits = field(default_factory=SpendingLimits)
    owner_limits: SpendingLimits = field(default_factory=SpendingLimits)
    retry_broken_streams: bool = False
    """Whether a turn that lost its model in the middle of an answer is to be asked once more."""
    thread_key: str = ""
    """What its users call the thread."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens as the provider counted them. ``input`` includes ``cached``."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One call that has ended, well or not."""

    provider: str
    model: str
    status: int
    """Of the provider's answer; 0 where there was none."""
    tokens: Tokens
    cost_usd: float | None
    """None where no price is known."""
    first_byte_seconds: float | None
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    thread_usd: float
    owner_usd: float
    """In this calendar month."""


class HoldResult(Enum):
    """Whether money can be held for a call, and if not, why."""

    HELD = "held"
    THREAD_SPENT = "thread_spent"
    OWNER_SPENT = "owner_spent"
    THREAD_HELD = "thread_held"
    """Something is left of its budget, and calls under way may use that up."""
    OWNER_HELD = "owner_held"


@dataclass(slots=True, eq=False)
class Hold:
    """The money that a call under way may still cost. It counts as spent, for every daemon on the same database.

    Whoever makes the call has to release it, also if nobody knows whether it was taken.
    """

    id: str
    usd: float
    is_open: bool = False
    """Whether anything may be held, and nobody else has undertaken to release it."""


class Books(Protocol):
    """The accounts, which threads keep. No method raises for a thread that is gone: nobody pays for its calls."""

    async def account(self, session_id: str, channel_tag: str | None, /) -> Account | None:
        """Find the account of this sandbox; None if it belongs to no thread: then it reaches no model.

        Without a tag, or with one that is unknown, it is the channel that has a turn running, or the default one.
        """
        ...

    async def spent(self, account: Account, /) -> Spent: ...

    async def hold(self, account: Account, hold: Hold, /) -> HoldResult:
        """Take so much of its budgets until it is released, if there is room; all who keep the same books see it."""
        ...

    async def release(self, hold: Hold, /) -> None:
        """Release a hold, if it was taken and not released yet. It does not raise, but tries again later."""
        ...

    async def begin(self, account: Account, call: Call, /) -> str:
        """Write down what a call costs at least, before a model is asked, since this daemon may die. Return its id."""
        ...

    async def advance(self, call_id: str, call: Call, /) -> None:
        """Write down what the call has cost so far."""
        ...

    async def record(
        self, account: Account, call: Call, call_id: str | None = None, hold: Hold | None = None, /
    ) -> None:
        """Write down a call for ever, even if it failed. It replaces what ``begin`` has written and, in the same
        moment, of what was held for it."""
        ...

    async def tell(self, account: Account, events: Sequence[TurnEvent], /) -> None:
        """Put events on the thread's stream: ``model-switched``, ``usage-alert``."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """The sum of several calls."""

    calls: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float = 0.0

    def to_json(self) -> Mapping[str, object]:
        return {
            "calls": self.calls,
            "input_tokens": self.tokens.input,
            "output_tokens": self.tokens.output,
            "cached_tokens": self.tokens.cached,
            "cost_usd": round(self.cost_usd, 6),
        }
