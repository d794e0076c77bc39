"""How much to measure, and where to say how far it has got."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """``quick`` is for finding out whether everything works: its figures mean little."""

    quick: bool
    say: Callable[[str], None]
    races: int | None = None
    """How many races to run; None: as many as usual."""

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full
