"""Money that a call under way may still cost. It counts as if it were spent, for every daemon on the same database."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Hold:
    """For one call. Whoever makes it sees to it that it is released, also if nobody knows whether it was taken."""

    id: str
    usd: float
    is_open: bool = False
    """Whether anything may be held, and nobody else has undertaken to release it."""
