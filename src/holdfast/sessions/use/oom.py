"""Which commands suffered when the kernel killed something in their sandbox for want of memory.

The kernel counts kills per sandbox and does not say whom they hit. So a command has suffered one if the counter grew
while it ran; commands that run at the same time, in other shells, share the memory and the verdict. Of a command that
began under an earlier daemon only its end is known: it has suffered if it was killed and the sandbox has had kills.
"""

from collections.abc import Callable
from dataclasses import replace

from holdfast.drivers.base import OomCounter
from holdfast.sessions.types import ExecResult

_KILLED = 137
_REMEMBERED = 200
"""Commands whose beginning or verdict is kept: more than a runner keeps results of."""


class OomWatch:
    """One session's commands and its counter. ``on_kill(count)`` is told of every kill once, whoever noticed it."""

    def __init__(self, counter: OomCounter | None, on_kill: Callable[[int], None]) -> None:
        self._counter = counter
        self._on_kill = on_kill
        self._seen = counter.read() if counter is not None else 0
        self._begun: dict[str, int] = {}
        self._verdicts: dict[str, bool] = {}

    def look(self) -> int:
        """How many kills there were. Costs microseconds."""
        if self._counter is not None:
            count = self._counter.read()
            if count > self._seen:
                new, self._seen = count - self._seen, count
                self._on_kill(new)
        return self._seen

    def begin(self, exec_id: str) -> None:
        """A command is about to run, or to be joined: then its first beginning counts."""
        self._begun.setdefault(exec_id, self.look())
        _forget_oldest(self._begun)

    def end(self, exec_id: str, exit_code: int) -> bool:
        """Whether the command with this result has suffered a kill; the same answer when asked again."""
        kills = self.look()
        before = self._begun.pop(exec_id, None)
        if before is not None:
            self._verdicts[exec_id] = self._verdicts.get(exec_id, False) or kills > before
        elif exec_id not in self._verdicts:
            self._verdicts[exec_id] = exit_code == _KILLED and kills > 0
        _forget_oldest(self._verdicts)
        return self._verdicts[exec_id]

    def close(self) -> None:
        if self._counter is not None:
            self._counter.close()
            self._counter = None


def judged(watch: OomWatch, result: ExecResult) -> ExecResult:
    """The result, with what is known of its command's memory."""
    return replace(result, oom_killed=True) if watch.end(result.exec_id, result.exit_code) else result


def _forget_oldest(kept: dict[str, int] | dict[str, bool]) -> None:
    while len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]
