"""Repeated measurements of one thing."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Samples:
    """Numbers of one kind, and what they say together. For rates, where more is better, the bad tail is the low one."""

    def __init__(self, values: Sequence[float] = (), *, more_is_better: bool = False) -> None:
        self._values = list(values)
        self._more_is_better = more_is_better

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        self._values.append(value)

    @contextmanager
    def timed_ms(self) -> Iterator[None]:
        """Adds the time that the block took, in milliseconds; nothing if it raised."""
        started = time.perf_counter()
        yield
        self.add((time.perf_counter() - started) * 1000)

    @property
    def last(self) -> float:
        return self._values[-1]

    @property
    def p50(self) -> float:
        return self._at(0.50)

    @property
    def p99(self) -> float:
        """What 99 of 100 measurements are not worse than."""
        return self._at(0.01 if self._more_is_better else 0.99)

    def _at(self, share: float) -> float:
        """The percentile, between the two nearest measurements."""
        if not self._values:
            raise ValueError("nothing was measured")
        ordered = sorted(self._values)
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
