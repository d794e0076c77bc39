"""Money that calls under way may still cost. It is in no database yet, and counts as if it were spent."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """For one call; the same for each of the keys that pay for it."""

    keys: tuple[str, ...]
    usd: float


class Holds:
    def __init__(self) -> None:
        self._holds: dict[str, set[Hold]] = {}

    def add(self, keys: Iterable[str], usd: float) -> Hold:
        """To be released by who has it."""
        hold = Hold(tuple(keys), usd)
        for key in hold.keys:
            self._holds.setdefault(key, set()).add(hold)
        return hold

    def release(self, hold: Hold) -> None:
        for key in hold.keys:
            held = self._holds.get(key)
            if held is not None:
                held.discard(hold)
                if not held:
                    del self._holds[key]

    def of(self, key: str) -> frozenset[Hold]:
        return frozenset(self._holds.get(key, ()))
