"""What a soak has done so far, in a file: it outlives the process that does it, which may be killed in the midst."""

import json
from collections import Counter
from pathlib import Path


class Journal:
    """``sent`` are the names of each thread's messages, in order; ``unanswered``, those that may not have come in.

    ``faults`` and ``marks`` are counted: what was done, and what a process has told of itself.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self.read()

    def read(self) -> None:
        """All of it, anew: somebody else may have written to it."""
        self.sent: dict[str, list[str]] = {}
        self.unanswered: list[tuple[str, str]] = []
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.stopped: int | None = None
        """The process that was last made to stand still."""
        for line in self._path.read_text().splitlines():
            self._take(*json.loads(line))

    def _take(self, what: str, *rest: str) -> None:
        if what == "sends":
            key, name = rest
            self.sent.setdefault(key, []).append(name)
            self.unanswered.append((key, name))
        elif what == "sent":
            key, name = rest
            self.unanswered = [one for one in self.unanswered if one != (key, name)]
        elif what == "fault":
            self.faults[rest[0]] += 1
        elif what == "stops":
            self.stopped = int(rest[0])
        else:
            self.marks[what] += 1

    def note(self, what: str, *rest: str) -> None:
        """It is written when this returns."""
        with self._path.open("a") as file:
            file.write(json.dumps([what, *rest]) + "\n")
        self._take(what, *rest)
