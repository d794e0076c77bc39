"""Whether the daemon that a connection led to is still there: asked of it when that connection has ended.

A daemon that is killed leaves the same end behind as one that has said all, and what was carried to a program here
would be taken for whole. Only who lives can answer a question that was put after the end: so it is put, on the control
connection, and whoever waits for the answer is told of its loss, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.loop import Loop, Timer

    Learn = Callable[[bool], None]
    Ask = Callable[[Learn], None]

PATIENCE_SECONDS = 10.0
"""A daemon that is silent for longer is as good as dead."""


class Witness:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ping: Callable[[int], None] | None = None
        self._daemon = 0
        self._asked = 0
        self._waiting: dict[int, tuple[Timer, Learn]] = {}

    # -- what the control connection tells ---------------------------------------------------------------------------

    def arrived(self, ping: Callable[[int], None]) -> None:
        """There is a daemon, which answers what ``ping`` sends, by its number."""
        self._ping = ping

    def lost(self) -> None:
        self._ping = None
        self._daemon += 1
        for number in list(self._waiting):
            self.answered(number, alive=False)

    def answered(self, number: object, *, alive: bool = True) -> None:
        found = self._waiting.pop(number, None) if isinstance(number, int) else None
        if found is not None:
            timer, learn = found
            timer.cancel()
            learn(alive)

    @property
    def daemon(self) -> int:
        """Which one it is: another number after each that was lost."""
        return self._daemon

    # -- who wants to know -------------------------------------------------------------------------------------------

    def of_new_connection(self) -> Ask:
        """For one that was opened now: what to ask when it has ended. The answer may come at once."""
        daemon = self._daemon
        return lambda learn: self._ask(daemon, learn)

    def _ask(self, daemon: int, learn: Learn) -> None:
        if self._ping is None or daemon != self._daemon:
            learn(False)
            return
        self._asked += 1
        number = self._asked
        timer = self._loop.after(PATIENCE_SECONDS, lambda: self.answered(number, alive=False))
        self._waiting[number] = timer, learn
        self._ping(number)
