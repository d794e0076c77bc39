"""How often one kind of log line may be written: what happens in sandboxes, and strangers, must not fill a disk.

Every line has a kind (its event) and a subject (the session, thread or turn that it is about). A subject has a token
bucket per kind, and each kind has a larger one for all subjects together. A line that finds them empty is left out and
counted; the next one that is written says ``left_out``, and so does the line that tells of the session's end. Requests
of callers whose key was good are all written: those are the access log.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict, WrappedLogger

from holdfast.concurrency import Bounded

BURST = 120
PER_SECOND = 1.0
"""Of one kind, for one subject."""
BURST_OF_ALL = 2000
PER_SECOND_OF_ALL = 50.0
"""Of one kind, for all subjects."""
MOST_SUBJECTS = 10_000
MOST_TOLD = 20
MAX_TEXT = 1000
"""Characters of one value; what is sent to us can be longer, and is of no use in a log."""
LEFT_OUT = "log.left_out"

_SUBJECTS = ("session_id", "thread_id", "turn_id", "provider", "url", "route")
_LONG = frozenset({"exception", "stack", "exc_info"})
_ENDS = frozenset({"session.destroyed", "session.crashed"})
_ACCESS = frozenset({"request", "websocket"})
_ALWAYS = frozenset({LEFT_OUT, "usage.lost"})
"""What nobody can find out otherwise."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float
    left_out: int = 0

    def take(self, now: float, burst: int, per_second: float) -> bool:
        self.tokens = min(burst, self.tokens + (now - self.at) * per_second)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class LogLimits(logging.Filter):
    """A processor for our own lines, and a filter for those of libraries. May be used from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._subjects: Bounded[str, dict[str, _Bucket]] = Bounded(MOST_SUBJECTS)
        self._kinds: dict[str, _Bucket] = {}

    def __call__(self, _logger: WrappedLogger, _level: str, event: EventDict) -> EventDict:
        for name, value in event.items():
            if isinstance(value, str) and len(value) > MAX_TEXT and name not in _LONG:
                event[name] = f"{value[:MAX_TEXT]}… ({len(value)} characters)"
        kind = str(event.get("event", ""))
        if kind in _ALWAYS or (kind in _ACCESS and event.get("key") is not None):
            return event
        left_out = self._admit(kind, _subject(kind, event))
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            event["left_out"] = left_out
        if kind in _ENDS and (rest := self.forget(str(event.get("session_id", "")))):
            event["lines_left_out"] = rest
        return event

    def filter(self, record: logging.LogRecord) -> bool:
        """Count by the text before anything is filled in: what is filled in may be new each time."""
        left_out = self._admit(record.name, str(record.msg)[:MAX_TEXT])
        if left_out:
            record.msg = f"{record.msg} [{left_out} like it were left out]"
        return left_out is not None

    def _admit(self, kind: str, subject: str) -> int | None:
        """Return how many like it were left out since the last one; None if this one is left out, too."""
        now = time.monotonic()
        with self._lock:
            bucket = self._subjects.setdefault(subject, {}).setdefault(kind, _Bucket(BURST, now))
            of_all = self._kinds.setdefault(kind, _Bucket(BURST_OF_ALL, now))
            if not (bucket.take(now, BURST, PER_SECOND) and of_all.take(now, BURST_OF_ALL, PER_SECOND_OF_ALL)):
                bucket.left_out += 1
                return None
            left_out, bucket.left_out = bucket.left_out, 0
            return left_out

    def forget(self, subject: str) -> Mapping[str, int]:
        """Forget a subject that is gone. Returns how many lines of which kind were left out and not told of yet."""
        with self._lock:
            found = self._subjects.pop(subject, {})
        return {kind: bucket.left_out for kind, bucket in found.items() if bucket.left_out}

    def take_left_out(self) -> list[tuple[str, str, int]]:
        """Return kind, subject and number of what was left out and not told of yet: the most first, not too many."""
        with self._lock:
            full = [
                (kind, subject, bucket)
                for subject, buckets in self._subjects.items()
                for kind, bucket in buckets.items()
                if bucket.left_out
            ]
            full.sort(key=lambda one: one[2].left_out, reverse=True)
            told = [(kind, subject, bucket.left_out) for kind, subject, bucket in full[:MOST_TOLD]]
            rest = sum(bucket.left_out for _kind, _subject, bucket in full[MOST_TOLD:])
            for _kind, _subject, bucket in full:
                bucket.left_out = 0
        return [*told, ("others", "", rest)] if rest else told


def _subject(kind: str, event: EventDict) -> str:
    if kind in _ACCESS:
        return f"{event.get('route')} {event.get('status', '')}"
    return next((str(event[name]) for name in _SUBJECTS if event.get(name)), "")
