"""How long a daemon's event loop was held by the daemon's own work, by its own figures: see ``daemon.loop_meter``.

Unlike a watch from outside this does not count what other processes of a busy machine take. And it is in the time of an
ordinary processor: on a slow one, or on one that others share, everything takes longer, and so does a fixed piece of
work that is timed beside it.
"""

import re
import time
from collections.abc import Callable, Mapping

import httpx2

MOST_MS = 50
"""What no request may take."""
_BEATS_SECONDS = 0.01
_STEPS = 200_000
_ORDINARY_SECONDS = 0.004
"""What as many steps take on an ordinary processor."""
_COPIED_BYTES = 16 << 20
_ORDINARY_COPY_SECONDS = 0.008
_BUCKET = re.compile(r'holdfast_loop_held_seconds_bucket\{le="([^"]+)"\} (\S+)')


class LoopHeld:
    """``held = LoopHeld(url); …; held.worst_ms()``: since it was asked last, rounded up to the figure's next step."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=60)
        self._before = self._read()

    def worst_ms(self) -> float:
        self._wait_for_beats()
        before, self._before = self._before, self._read()
        worst = below = 0.0
        for bound, count in self._before.items():
            if count - before[bound] > below:
                below, worst = count - before[bound], bound
        return worst * 1000 / _slowness()

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
    """How many times slower than an ordinary one this machine is at the moment, at steps or at copies; at least 1."""
    return max(1.0, _seconds(_count) / _ORDINARY_SECONDS, _seconds(_copy) / _ORDINARY_COPY_SECONDS)


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
