"""What happens when a command runs out of time: INT, TERM, KILL to all that it started, and to nothing else.

Orphans stay below the shell (it is a subreaper), so "all that it started" is: everything below the shell, except what
hangs below the children that the shell had before the command began.
"""

from __future__ import annotations

import time

from holdfast.runner.lean import signals
from holdfast.runner.processes import children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.loop import Loop

ABORT_SIGNAL = signals.SIGRTMAX - 3
STAGES = ((signals.SIGINT, 0.5), (signals.SIGTERM, 0.5), (signals.SIGKILL, 0.5))
TICK_SECONDS = 0.02


class Deadline:
    """The clock of one command."""

    def __init__(
        self,
        loop: Loop,
        shell: int,
        earlier: list[int],
        seconds: float,
        is_past_command: Callable[[], bool],
        on_tick: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._is_past_command = is_past_command
        self._earlier = earlier
        self._on_tick = on_tick
        self._signalled: dict[int, int] = {}
        self._victims: set[int] = set()
        self._passed_at = 0.0
        self._stage = 0
        self._timer = loop.after(seconds, self._pass)

    @property
    def passed(self) -> bool:
        return self._passed_at > 0

    def cancel(self) -> None:
        self._timer.cancel()

    def pass_now(self) -> None:
        """End the command before its time."""
        if not self.passed:
            self._timer.cancel()
            self._pass()

    def nothing_left(self) -> bool:
        """Whether all that the command started is gone."""
        return not self._find_victims()

    def shell_is_gone(self, then: Callable[[], None]) -> None:
        """The shell died in the middle of this: go on with its orphans, then call back."""
        self._shell = 0

        def tick() -> None:
            if self.nothing_left() or time.monotonic() > self._passed_at + 5:
                self.cancel()
                then()

        self._on_tick = tick

    def _pass(self) -> None:
        self._passed_at = time.monotonic()
        self._step()

    def _step(self) -> None:
        self._stage = self._stage_now()
        self._signal_shell()  # before its children: it must know, when they end, not to go on to the next command
        self._signal_victims()
        self._timer = self._loop.after(TICK_SECONDS, self._step)
        self._on_tick()

    def _stage_now(self) -> int:
        elapsed = time.monotonic() - self._passed_at
        for stage, (_signum, seconds) in enumerate(STAGES):
            elapsed -= seconds
            if elapsed < 0:
                return stage
        return len(STAGES)

    def _find_victims(self) -> set[int]:
        roots = [pid for pid in self._victims if children.is_alive(pid)]
        if self._shell:
            roots += [pid for pid in children.children_of(self._shell) if pid not in self._earlier]
        spared = children.descendants_of(self._earlier)
        found = children.descendants_of(roots) - spared
        self._victims = {pid for pid in found if children.is_alive(pid)}
        return self._victims

    def _signal_victims(self) -> None:
        signum = STAGES[min(self._stage, len(STAGES) - 1)][0]
        for pid in self._find_victims():
            if self._signalled.get(pid) != signum:
                self._signalled[pid] = signum
                children.send_signal(pid, signum)
                children.send_signal(pid, signals.SIGCONT)

    def _signal_shell(self) -> None:
        """Make the shell give up the rest of the command; kill it only if it cannot be brought to that."""
        if not self._shell:
            return
        if self._stage >= len(STAGES):
            children.send_signal(self._shell, signals.SIGKILL)
        elif self._is_past_command():
            return  # it has given up the command already; another interrupt would hit its report
        elif self._signalled.get(self._shell) != self._stage:
            self._signalled[self._shell] = self._stage
            children.send_signal(self._shell, ABORT_SIGNAL)
            children.send_signal(self._shell, signals.SIGCONT)
