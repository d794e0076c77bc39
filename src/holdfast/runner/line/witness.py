"""Finds out, when a connection has ended, whether the daemon ended it or died.

The connections of a killed daemon end in the same way as those of a daemon that is done, and a program here would take
a part of an answer for the whole. But only a living daemon can answer a question that is asked after the end: so we
ask it, on the control connection. If that connection is lost, the answer is no.
"""

from __future__ import annotations

from holdfast.runner.lean import Callable
from holdfast.runner.loop import Loop, Timer

Learn = Callable[[bool], None]
Ask = Callable[[Learn], None]

PATIENCE_SECONDS = 10.0
"""A daemon that is silent for longer counts as dead."""


class Witness:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ping: Callable[[int], None] | None = None
        self.daemon = 0
        """A number for the present daemon; it changes each time that a daemon is lost."""
        self._asked = 0
        self._waiting: dict[int, tuple[Timer, Learn]] = {}

    # -- what the control connection tells ---------------------------------------------------------------------------

    def arrived(self, ping: Callable[[int], None]) -> None:
        """Note that a daemon is connected; it answers each number that ``ping`` sends."""
        self._ping = ping

    def lost(self) -> None:
        self._ping = None
        self.daemon += 1
        for number in list(self._waiting):
            self.answered(number, alive=False)

    def answered(self, number: object, *, alive: bool = True) -> None:
        found = self._waiting.pop(number, None) if isinstance(number, int) else None
        if found is not None:
            timer, learn = found
            timer.cancel()
            learn(alive)

    # -- who wants to know -------------------------------------------------------------------------------------------

    def of_new_connection(self) -> Ask:
        """The question for a connection that is opened now, to be asked when it has ended. The answer may come at
        once."""
        daemon = self.daemon
        return lambda learn: self._ask(daemon, learn)

    def _ask(self, daemon: int, learn: Learn) -> None:
        if self._ping is None or daemon != self.daemon:
            learn(False)
            return
        self._asked += 1
        number = self._asked
        timer = self._loop.after(PATIENCE_SECONDS, lambda: self.answered(number, alive=False))
        self._waiting[number] = timer, learn
        self._ping(number)
