"""How fast one sandbox may put large questions: to read them is work in the loop that all others need, too."""

import time
from collections.abc import Callable

BYTES_PER_SECOND = 20 << 20
"""With which one sandbox takes about a third of the loop at most."""
SLACK_SECONDS = 1.0
"""So much at once is nobody's business."""
_MOST_KEYS = 1000


class Pace:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._busy_until: dict[str, float] = {}

    def wait(self, session_id: str, weight: int) -> float:
        """Counts this question, and says for how many seconds it is to wait."""
        now = self._clock()
        begin = max(self._busy_until.get(session_id, now), now)
        self._busy_until[session_id] = begin + weight / BYTES_PER_SECOND
        if len(self._busy_until) > _MOST_KEYS:
            self._busy_until = {one: until for one, until in self._busy_until.items() if until > now}
        return max(begin - now - SLACK_SECONDS, 0.0)
