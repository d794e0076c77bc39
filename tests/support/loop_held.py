"""How long a daemon's event loop was held by the daemon's own work, by its own figures: see ``daemon.loop_meter``.

Unlike a watch from outside this does not count what other processes of a busy machine take. And it is in the time of an
ordinary processor: on a slow one, or on one that others share, everything takes longer, and so do three fixed pieces of
work (steps, copies, the reading of a long text) that are timed before and after.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import httpx2
from pydantic_core import from_json

MOST_MS = 50
"""What no request may take."""
_BEATS_SECONDS = 0.01
_STEPS = 200_000
_ORDINARY_SECONDS = 0.004
"""What as many steps take on an ordinary processor."""
_COPIED_BYTES = 16 << 20
_ORDINARY_COPY_SECONDS = 0.008
_LONG_TEXT = b'"' + b"a\\n" * 1_300_000 + b'"'
_ORDINARY_READ_SECONDS = 0.010
TRIES = 6
"""One that is within the limit is enough: what a request costs is the same each time, and what is added to it, not."""
T = TypeVar("T")
_BUCKET = re.compile(r'holdfast_loop_held_seconds_bucket\{le="([^"]+)"\} (\S+)')


class LoopHeld:
    """``held = LoopHeld(url); …; held.worst_ms()``: since it was asked last, rounded up to the figure's next step."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=60)
        self._before = self._read()
        self._slowness = _slowness()

    def check(self, what: str, act: Callable[[], T]) -> T:
        """Act until the loop was not held for too long meanwhile, at most ``TRIES`` times, and return the result."""
        held: list[float] = []
        while True:
            self.worst_ms()
            result = act()
            held.append(self.worst_ms())
            if held[-1] <= MOST_MS:
                return result
            assert len(held) < TRIES, f"{what} held the loop for {held} ms"

    def worst_ms(self) -> float:
        self._wait_for_beats()
        before, self._before = self._before, self._read()
        worst = below = 0.0
        for bound, count in self._before.items():
            if count - before[bound] > below:
                below, worst = count - before[bound], bound
        earlier, self._slowness = self._slowness, _slowness()
        return worst * 1000 / max(earlier, self._slowness)

    def _wait_for_beats(self) -> None:
        """What held the loop is written down at the beat after it."""
        seen = self._read()[float("inf")]
        until = time.monotonic() + 30
        while self._read()[float("inf")] < seen + 2:
            assert time.monotonic() < until, "the loop does not beat"
            time.sleep(_BEATS_SECONDS)

    def _read(self) -> Mapping[float, float]:
        found = {float(bound): float(count) for bound, count in _BUCKET.findall(self._client.get("/metrics").text)}
        assert found, "the daemon says nothing of its loop"
        return found

    def close(self) -> None:
        self._client.close()


def _slowness() -> float:
    """How many times slower than an ordinary one this machine is at the moment, at what it does worst; at least 1."""
    return max(
        1.0,
        _seconds(_count) / _ORDINARY_SECONDS,
        _seconds(_copy) / _ORDINARY_COPY_SECONDS,
        _seconds(_read_text) / _ORDINARY_READ_SECONDS,
    )


def _seconds(work: Callable[[], None]) -> float:
    times = []
    for _ in range(3):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return max(times)


def _count() -> None:
    for _ in range(_STEPS):
        pass


def _copy() -> None:
    bytes(bytearray(_COPIED_BYTES))


def _read_text() -> None:
    from_json(_LONG_TEXT)
