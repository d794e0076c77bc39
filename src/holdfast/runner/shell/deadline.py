"""What happens when a command runs out of time: INT, TERM, KILL to all that it started, and to nothing else.

Orphans stay below the shell (it is a subreaper), so "all that it started" is: everything below the shell, except what
hangs below the children that the shell had before the command began.
"""

from __future__ import annotations

import time

from holdfast.runner.lean import Callable, signals
from holdfast.runner.loop import Loop
from holdfast.runner.processes import children
from holdfast.runner.shell.command import Command

ABORT_SIGNAL = signals.SIGRTMAX - 3
STAGES = ((signals.SIGINT, 0.5), (signals.SIGTERM, 0.5), (signals.SIGKILL, 0.5))
TICK_SECONDS = 0.02


class Deadline:
    """The clock of one command. ``on_tick`` is called every moment once it has passed."""

    def __init__(
        self,
        loop: Loop,
        shell: int,
        command: Command,
        is_past_command: Callable[[], bool],
        on_tick: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._earlier = children.children_of(shell)
        self._command = command
        self._is_past_command = is_past_command
        self._on_tick = on_tick
        self._signalled: dict[int, int] = {}
        self._victims: set[int] = set()
        self._spares_report = False
        self._passed_at = 0.0
        self._stage = 0
        self._timer = loop.after(command.job.timeout, self.pass_now)

    def cancel(self) -> None:
        self._timer.cancel()

    def pass_now(self) -> None:
        """Call the command off: its time is over, or somebody cancels it."""
        if not self._passed_at:
            self.cancel()
            self._passed_at = time.monotonic()
            self._command.call_off()
            self._step()

    def nothing_left(self) -> bool:
        """Say whether all that the command started is gone."""
        return not self._find_victims()

    def new_children(self) -> list[int]:
        """Return the children that the shell did not have before the command."""
        return [pid for pid in children.children_of(self._shell) if pid not in self._earlier]

    def spare_report(self) -> None:
        """Signal no more children, because nothing is left: those that come now write the shell's report."""
        self._spares_report = True

    def shell_is_gone(self, then: Callable[[], None]) -> None:
        """Go on with the orphans of a shell that died in the middle of this, then call back."""
        self._shell = 0

        def tick() -> None:
            if self.nothing_left() or time.monotonic() > self._passed_at + 5:
                self.cancel()
                then()

        self._on_tick = tick

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
        if self._spares_report or not self._command.begun():
            return set()
        roots = [pid for pid in self._victims if children.is_alive(pid)]
        if self._shell:
            roots += self.new_children()
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
        elif self._is_past_command() or not self._command.begun():
            return  # it has given up the command already, or will find none; an interrupt would hit its report
        elif self._signalled.get(self._shell) != self._stage:
            self._signalled[self._shell] = self._stage
            children.send_signal(self._shell, ABORT_SIGNAL)
            children.send_signal(self._shell, signals.SIGCONT)
