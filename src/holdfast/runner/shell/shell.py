"""A stateful shell: one long-lived bash, its queue of commands, and its replacement when it dies.

Commands run one at a time. While one runs, one of four things happens: bash reports its end; the deadline passes
(``deadline.py``); bash itself ends; or bash is past the command without a report, because an interrupt took it or the
command broke its means to report. In every case the exec finishes and the next command finds a shell that works.
"""

from __future__ import annotations

import os
import time

from holdfast.runner.lean import deque
from holdfast.runner.processes import children
from holdfast.runner.shell import bash_text, end_hook
from holdfast.runner.shell.bash import Bash
from holdfast.runner.shell.bash_text import State
from holdfast.runner.shell.command import Command
from holdfast.runner.shell.deadline import Deadline
from holdfast.runner.shell.pipes import Pipes
from holdfast.runner.shell.write_order import WriteOrder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.loop import Loop, Timer
    from holdfast.runner.shell.execs import Exec

BEGIN_SECONDS = 5.0
HOOK_SECONDS = 1.0
"""The same for a shell that runs something of the user's before each prompt, which may take as long as it likes."""
TICK_SECONDS = 0.25
ANSWER_SECONDS = 1.0
"""How long a shell that is free may take over a request for its report before it is taken for one that cannot."""
IDLE_SECONDS = 0.4
REPORT_SECONDS = 3.0
TIMED_OUT = 124
CANCELLED = 130
"""As a shell has it for a command that was interrupted."""
KILLED = 137
MAX_BACKGROUND_PIPES = 64
ATTEMPTS = 3


class Shell:
    """One named shell of a session."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        directory: str,
        make_order: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._argv = argv
        self._env = env
        self._directory = f"{directory}/{name}"
        self._restore_file = f"{self._directory}/restore"
        self._make_order = make_order
        self._cwd = cwd
        self._order = WriteOrder()
        self._bash: Bash | None = None
        self._state: State | None = None
        self._has_end_hook = False
        self._before_end: tuple[str, State | None] | None = None
        self._count = 0
        self._queue: deque[Exec] = deque()
        self._command: Command | None = None
        self._reporting: Command | None = None
        self._deadline: Deadline | None = None
        self._earlier: list[int] = []
        self._restarted = False
        self._last_status = 0
        self._attempt = 0
        self._tick: Timer | None = None
        self._keep_awake: Timer | None = None
        self._report_timer: Timer | None = None
        self._background: list[Command] = []
        self._spare: Pipes | None = None
        os.makedirs(self._directory, 0o700, exist_ok=True)

    def submit(self, job: Exec) -> None:
        self._queue.append(job)
        self._next()

    def warm_up(self) -> None:
        """Start bash before the first command asks for it."""
        if self._bash is None:
            try:
                self._bash = self._start_bash()
            except OSError:
                return  # no process to be had now; the next command tries again and says so

    @property
    def busy(self) -> bool:
        """Whether a command runs, or waits."""
        return self._command is not None or bool(self._queue)

    @property
    def settled(self) -> bool:
        """Whether the state after the last command has been told."""
        return not self.busy and self._reporting is None

    def saved(self) -> tuple[str, State | None]:
        """Its directory and state: what a new one needs to go on from here."""
        return self._cwd, self._state

    def continue_from(self, cwd: str, state: State | None) -> None:
        """Before its first command: become the shell that was saved."""
        self._cwd, self._state = cwd, state
        self.warm_up()

    def discard(self) -> None:
        """End a shell that never ran a command and never will."""
        self._kill()

    # -- one command -------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """The next in the queue, once the one before has ended and its shell has told its state."""
        if self._command is None and self._reporting is None and self._queue:
            self._run(self._queue.popleft(), attempt=1)

    def _next_soon(self) -> None:
        """Not at once: a long queue of quick commands would nest as deep as it is long."""
        self._loop.after(0, self._next if self._queue else self.warm_up)

    def _run(self, job: Exec, attempt: int) -> None:
        if job.cancelled:
            job.finish(self._result(CANCELLED, 0.0, cancelled=True))
            self._next_soon()
            return
        problem = _cwd_problem(job.cwd)
        if problem:
            job.fail("bad_input", problem)
            self._next_soon()
            return
        self._attempt = attempt
        try:
            bash = self._bash = self._bash or self._start_bash()
            last_status = 0 if self._state is None or self._state.ends_on_failure else self._last_status
            command = self._prepare(job, last_status)
        except OSError as error:
            if attempt < ATTEMPTS:
                self._make_order()
                self._run(job, attempt + 1)
                return
            job.fail("unavailable", f"the sandbox cannot start a command now: {error.strerror}; free some resources")
            self._next_soon()
            return
        self._command = command
        self._earlier = children.children_of(bash.pid)
        self._deadline = Deadline(
            self._loop, bash.pid, self._earlier, job.timeout, self._is_past_command, self._on_deadline_tick
        )
        job.on_cancel = self._deadline.pass_now
        self._tick = self._loop.after(TICK_SECONDS, self._look)
        recall = last_status != 0
        line = bash_text.command_line(
            command.pipes.directory,
            command.token,
            command.stdin,
            job.env,
            job.cwd,
            self._cwd,
            self._state,
            recall=recall,
            first=self._words_first(command),
            after=command.words_after,
        )
        bash.say(command.give(line))

    def _words_first(self, command: Command) -> str:
        """So that the state is told if this command ends the shell, whatever it and those before do with EXIT traps."""
        words = "" if self._has_end_hook else f"{end_hook.keep(self._directory)}; "
        shadowed = self._state is not None and (self._state.has_debug_trap or self._state.has_function("trap"))
        if end_hook.needs_function(command.job.cmd) and not shadowed:
            words += f"{end_hook.define(self._directory)}; "
            command.words_after = f"{end_hook.UNDEFINE}; "
        return words

    def _prepare(self, job: Exec, last_status: int) -> Command:
        """With the pipes of the command before, if they are as they were; else with new ones."""
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                return Command(self._loop, self._order, spare, job, last_status, self._on_report)
            except OSError:
                pass  # somebody has been at them
        self._count += 1
        pipes = Pipes(self._loop, self._order, f"{self._directory}/{self._count}")
        return Command(self._loop, self._order, pipes, job, last_status, self._on_report)

    def _on_report(self, command: Command) -> None:
        """Something came through a command's result or state pipe."""
        if command.state is not None and command.reported:
            had_debug_trap = self._state is not None and self._state.has_debug_trap
            dump, self._has_end_hook = end_hook.split(command.state, self._directory)
            self._state = State(dump, builtin_is_hidden=command.asked_past_shadows)
            self._before_end = None
            self._stay_awake()
            if self._state.has_debug_trap and not had_debug_trap and not command.asked_again:
                self._ask_again(command)  # the new trap has spoken into this report
        if command is self._command:
            self._advance(command)
        elif command.reported:
            self._close(command)
            if command is self._reporting:
                self._end_report()
                self._next()

    def _advance(self, command: Command) -> None:
        if command.status is None:
            if command.reported:
                self._ask_past_shadows(command)
        elif self._attempt == 1 and not command.begun():
            command.never_ran = True
            self._kill()
        elif self._deadline is None or not self._deadline.passed:
            self._finish(command.status)
        elif self._deadline.nothing_left():
            self._finish(TIMED_OUT)

    def _ask_past_shadows(self, command: Command) -> None:
        """The report is unreadable: what it is made of is hidden by functions, or disabled. Ask past that, once."""
        if self._bash is not None and not command.asked_past_shadows and self._listen_again(command):
            command.asked_past_shadows = True
            self._bash.say(bash_text.report_past_shadows(command.pipes.directory, command.token))

    def _ask_again(self, command: Command) -> None:
        """The line was abandoned before its report."""
        if self._bash is not None and self._listen_again(command):
            place = command.pipes.directory, command.token, self._cwd if command.job.cwd else None
            self._bash.say(bash_text.report_again(*place, command.words_after))

    def _listen_again(self, command: Command) -> bool:
        for repair in (self._make_order, self._dismiss):
            try:
                command.listen_again()
                return True
            except OSError:  # a command has removed, locked or filled our directory
                repair()
        return False

    def _dismiss(self) -> None:
        """Have bash tell by its own exit how the command ended; it can do nothing else any more."""
        if self._bash is not None:
            self._bash.dismiss(bash_text.LAST_WORDS)

    def paths(self) -> set[str]:
        """All that is this shell's on disk."""
        pipes = [command.pipes for command in (*self._background, self._command) if command is not None]
        pipes += [self._spare] if self._spare is not None else []
        own = {self._directory, self._restore_file, *[f"{self._directory}/{name}" for name in end_hook.NAMES]}
        return own.union(*[each.paths() for each in pipes if each.in_use])

    def _is_past_command(self) -> bool:
        """Whether bash has left the command: its stdin is its own input again, and not the command's."""
        command, bash = self._command, self._bash
        return command is not None and bash is not None and command.begun() and bash.reads_its_input()

    def _on_deadline_tick(self) -> None:
        """Called while what a timed-out command started is being killed."""
        command, deadline = self._command, self._deadline
        if command is None or deadline is None or not deadline.nothing_left():
            return
        if command.status is not None:
            self._finish(TIMED_OUT)
        elif self._is_past_command() and not command.asked_again:
            self._ask_again(command)

    def _look(self) -> None:
        """Every quarter of a second during a command: is the shell still able to end it?"""
        command, bash = self._command, self._bash
        if command is None or bash is None:
            return
        self._tick = self._loop.after(TICK_SECONDS, self._look)
        if self._deadline is not None and self._deadline.passed:
            return
        if not command.begun():
            if time.monotonic() - command.started > self._patience(command):
                self._kill()
        elif command.status is None and self._is_past_command() and not self._is_busy(bash):
            if not command.asked_again:
                self._ask_again(command)
            elif time.monotonic() - command.asked_at < ANSWER_SECONDS:
                return
            elif not bash.dismissed:
                command.asked_at = time.monotonic()
                self._dismiss()
            else:
                self._kill()

    def _patience(self, command: Command) -> float:
        """How long to wait until the shell begins on a command before it is given to another one."""
        if self._attempt > 1 or self._state is None or not self._state.has_prompt_hook:
            return BEGIN_SECONDS  # a new shell has no such hooks
        return min(HOOK_SECONDS, command.job.timeout / 2)

    def _is_busy(self, bash: Bash) -> bool:
        """Whether the shell computes, or has a child that it did not have before this command."""
        if children.computes(bash.pid):
            return True
        return any(child not in self._earlier for child in children.children_of(bash.pid))

    def _finish(self, exit_code: int) -> None:
        command = self._command
        if command is None:
            return
        stopped = self._deadline is not None and self._deadline.passed
        cancelled = stopped and command.job.cancelled
        self._stop_watching()
        command.drain()
        self._cwd = self._believable_cwd(command.cwd)
        self._last_status = 0 if self._bash is None else exit_code
        code = CANCELLED if cancelled else TIMED_OUT if stopped else exit_code
        timed_out = stopped and not cancelled
        command.job.finish(self._result(code, command.started, timed_out=timed_out, cancelled=cancelled))
        self._restarted = False
        self._retire(command)
        self._next_soon()

    def _result(
        self, exit_code: int, started: float, *, timed_out: bool = False, cancelled: bool = False
    ) -> dict[str, object]:
        return {
            "exit_code": exit_code,
            "cwd": self._cwd,
            "timed_out": timed_out,
            "cancelled": cancelled,
            "shell_restarted": self._restarted,
            "duration_ms": int((time.monotonic() - started) * 1000) if started else 0,
        }

    def _stop_watching(self) -> None:
        self._command = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._tick is not None:
            self._tick.cancel()

    def _believable_cwd(self, reported: str | None) -> str:
        """What the shell says, if that is where it is; PWD is only a variable, and ``cd`` a word."""
        if self._bash is None:
            return self._cwd
        where = f"/proc/{self._bash.pid}/cwd"
        try:
            actual = os.readlink(where)
        except OSError:
            return reported or self._cwd
        if reported == actual:
            return actual
        try:
            if reported and reported.startswith("/") and os.path.samestat(os.stat(reported), os.stat(where)):
                return reported  # by way of a link
        except OSError:
            pass  # the directory was removed, or is out of reach
        return actual

    def _retire(self, command: Command) -> None:
        """Keep reading, and throwing away, what its background children write: they must not block or die of it."""
        command.pipes.end_outputs()
        self._background = [kept for kept in self._background if kept.pipes.in_use]
        self._background.append(command)
        if len(self._background) > MAX_BACKGROUND_PIPES:
            self._background.pop(0).close(outputs=True)
        if command.reported or self._bash is None:
            self._close(command)
        else:
            self._reporting = command
            self._report_timer = self._loop.after(REPORT_SECONDS, lambda: self._give_up_report(command))

    def _close(self, command: Command) -> None:
        """Let go of a command that has ended, but keep its pipes for the next where that can be."""
        if self._bash is not None and self._spare is None and command.give_back_pipes():
            self._spare = command.pipes
            self._background.remove(command)
        else:
            command.close(outputs=False)

    def _end_report(self) -> None:
        self._reporting = None
        if self._report_timer is not None:
            self._report_timer.cancel()

    def _give_up_report(self, command: Command) -> None:
        """A shell that cannot tell its state, because it cannot even fork, is of no more use."""
        if self._reporting is command:
            self._kill()

    def _stay_awake(self) -> None:
        """With TMOUT set, bash ends itself when nobody talks to it; so somebody does."""
        if self._keep_awake is not None:
            self._keep_awake.cancel()
            self._keep_awake = None
        if self._state is not None and self._state.idle_timeout:
            self._keep_awake = self._loop.after(IDLE_SECONDS, self._say_nothing)

    def _say_nothing(self) -> None:
        if self._bash is not None and self._command is None:
            self._bash.say("\n")
        self._stay_awake()

    # -- the process -------------------------------------------------------------------------------------------------

    def _start_bash(self) -> Bash:
        bash = Bash(self._loop, self._argv, self._env, self._cwd, self._on_exit)
        bash.say(bash_text.PROLOGUE)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        end_hook.write(self._directory)
        if self._state is not None:
            end_hook.replace(self._restore_file, self._state.restore_script(self._cwd, self._env))
            bash.say(f"\\. {self._restore_file}\n")
        bash.say(f"{end_hook.keep(self._directory)}\n")
        self._has_end_hook = True
        return bash

    def _kill(self) -> None:
        if self._bash is not None:
            children.send_signal(self._bash.pid, children.KILL)

    def _on_exit(self, exit_code: int) -> None:
        """Bash has ended, by itself, by a command or by us."""
        command, deadline = self._command, self._deadline
        self._bash = None
        self._restarted = True
        for kept in self._background:  # no report of theirs can come any more
            kept.close(outputs=False)
        if self._spare is not None:
            self._spare.close(outputs=True)
            self._spare = None
        self._end_report()
        self._take_last_state(command)
        if command is None:
            self._next()
        elif deadline is not None and deadline.passed:
            deadline.shell_is_gone(lambda: self._finish(TIMED_OUT))
        elif command.begun() and not command.never_ran:
            self._finish(exit_code)
        elif self._attempt < ATTEMPTS:
            self._try_again(command)
        else:
            self._finish(KILLED)

    def _take_last_state(self, command: Command | None) -> None:
        """As it was when a command ended the shell. Of a shell that ends by itself all has been told already."""
        found = end_hook.take(self._directory)
        if found is None or command is None or command.never_ran or not command.begun():
            return
        cwd, dump = found
        self._before_end = self._cwd, self._state
        self._state = State(end_hook.split(dump, self._directory)[0], builtin_is_hidden=False)
        if command.job.cwd is None and cwd.startswith("/") and os.path.isdir(cwd):
            self._cwd = cwd

    def _try_again(self, command: Command) -> None:
        """It died before it began on the command: safe to give the command to a new one, at last without old state.

        A state that was told at a shell's end may be what ends the next one: then that of before is tried first.
        """
        if self._before_end is not None:
            self._cwd, self._state = self._before_end
            self._before_end = None
        elif self._attempt == ATTEMPTS - 1 and not command.never_ran:
            self._state = None
        self._stop_watching()
        command.drain()
        command.close(outputs=True)
        self._run(command.job, self._attempt + 1)


def _cwd_problem(cwd: str | None) -> str | None:
    if cwd is None:
        return None
    if not os.path.isdir(cwd):
        return f"cwd: {cwd} is no directory in this sandbox"
    if not os.access(cwd, os.X_OK):
        return f"cwd: the sandbox's user may not enter {cwd}"
    return None
