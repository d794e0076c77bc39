"""What a thread's calls to models may be, from its own options and the daemon's: the daemon's hold in any case."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from holdfast.broker.accounts import Account, SpendingLimits
from holdfast.records.threads import ThreadRow
from holdfast.threads import options as kept
from holdfast.threads.settings import EVERYBODY, AgentDefaults
from holdfast.threads.types import ThreadOptions

N = TypeVar("N", int, float)
T = TypeVar("T")


def account_of(row: ThreadRow, defaults: AgentDefaults, channel: str, turn_id: str | None = None) -> Account:
    """Return who pays for what is asked in this channel."""
    chosen, above = kept.from_json(row.settings), defaults.allowed_models
    return Account(
        thread_id=row.id,
        owner=row.owner,
        channel=channel,
        turn_id=turn_id,
        allowed_models=allowed(chosen.allowed_models, allowed(_of(row.owner, defaults.owner_models), above)),
        preferences=preferences(chosen, defaults),
        limits=tighter(chosen.limits or SpendingLimits(), defaults.thread_limits),
        owner_limits=_of(row.owner, defaults.owner_limits) or SpendingLimits(),
        retry_broken_streams=bool(chosen.retry_broken_streams),
        thread_key=row.key,
    )


def _of(owner: str, by_owner: Mapping[str, T]) -> T | None:
    return by_owner.get(owner, by_owner.get(EVERYBODY))


def preferences(chosen: ThreadOptions, defaults: AgentDefaults) -> Sequence[str]:
    """Return ids of models, best first, each once: the thread's model, then those to go on with."""
    first = chosen.model or defaults.model
    rest = defaults.model_preferences if chosen.model_preferences is None else chosen.model_preferences
    return tuple(dict.fromkeys([first, *rest] if first else rest))


def allowed(own: Sequence[str] | None, above: Sequence[str]) -> Sequence[str]:
    """Return patterns of what both lists allow.

    Of two patterns, the one that is within the other counts; two that merely overlap allow nothing. For patterns in
    which only ``*`` stands for something, one is within another if it matches that as it is written.
    """
    if own is None:
        return tuple(above)
    narrow = [one for one in own if any(fnmatchcase(one, wide) for wide in above)]
    narrow += [one for one in above if any(fnmatchcase(one, wide) for wide in own)]
    return tuple(dict.fromkeys(narrow))


def is_allowed(model_id: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(model_id, pattern) for pattern in patterns)


def tighter(one: SpendingLimits, other: SpendingLimits) -> SpendingLimits:
    return SpendingLimits(
        _least(one.requests_per_minute, other.requests_per_minute),
        _least(one.tokens_per_minute, other.tokens_per_minute),
        _least(one.spend_usd, other.spend_usd),
    )


def _least(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
