"""What calls to models have cost: one row per call, and sums of rows. A row is a bill: it outlives its thread."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Run:
    """One life of the daemon of a node."""

    node: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One call that has ended, well or not. ``status`` is that of the provider's answer, 0 where there was none."""

    id: str
    thread_id: str
    thread_key: str
    owner: str
    channel: str
    turn_id: str | None
    provider: str
    model: str
    status: int
    input_tokens: int
    """With ``cached_tokens`` in it."""
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    """None where no price was known."""
    first_byte_seconds: float | None
    seconds: float
    error: str | None
    day: str
    """Of ``at``, in UTC, such as 2026-02-28: days and months are sums over an index."""
    at: float


@dataclass(frozen=True, slots=True)
class UsageSum:
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0

    def to_json(self) -> dict[str, object]:
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "cost_usd": round(self.cost_usd, 6),
        }


class UsageBy(StrEnum):
    """What a report has one line for."""

    THREAD = "thread"
    MODEL = "model"
    DAY = "day"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class UsageLine:
    """One line of a report. ``what`` is a thread's key, a model's id, a day or an owner."""

    what: str
    owner: str | None
    """Of a thread: its key alone does not name it."""
    sum: UsageSum
