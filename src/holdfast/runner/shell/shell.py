"""A stateful shell: one long-lived bash, its queue of commands, and its replacement when it dies.

Commands run one at a time. While one runs, one of four things happens: bash reports its end; the deadline passes
(``deadline``); bash itself ends; or bash is past the command without a report, because an interrupt took it or the
command broke its means to report. In every case the exec finishes and the next command finds a shell that works.
``machine`` has the phases that a shell, a command and its report go through.
"""

from __future__ import annotations

import os
import time

from holdfast.runner.lean import Callable, deque
from holdfast.runner.loop import Loop, Timer
from holdfast.runner.processes import children
from holdfast.runner.shell import bash_text, end_hook, machine
from holdfast.runner.shell.bash import Bash
from holdfast.runner.shell.bash_text import State
from holdfast.runner.shell.command import Command
from holdfast.runner.shell.deadline import Deadline
from holdfast.runner.shell.execs import Exec
from holdfast.runner.shell.last_known import LastKnown
from holdfast.runner.shell.pipes import Pipes, WriteOrder

BEGIN_SECONDS = 5.0
"""How long bash may take to begin on a command before the command is given to another one."""
HOOK_SECONDS = 1.0
"""The same for a shell that runs something of the user's before each prompt, which may take as long as it likes."""
TICK_SECONDS = 0.25
ANSWER_SECONDS = 1.0
"""How long a shell that is free may take to answer a request for its report before it counts as unable to."""
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
        self._order = WriteOrder()
        self.known = LastKnown(cwd, self._directory)
        self._phase = machine.ABSENT
        self._bash: Bash | None = None
        self._command: Command | None = None
        """The command that bash has, or whose report is awaited."""
        self._deadline: Deadline | None = None
        self._queue: deque[Exec] = deque()
        self._restarted = False
        """Whether bash has ended since the last result."""
        self._timer: Timer | None = None
        self._keep_awake: Timer | None = None
        self._background: list[Command] = []
        self._spare: Pipes | None = None
        self._count = 0
        os.makedirs(self._directory, 0o700, exist_ok=True)

    def submit(self, job: Exec) -> None:
        self._queue.append(job)
        self._next()

    def warm_up(self) -> None:
        """Start bash before the first command asks for it."""
        if self._phase == machine.ABSENT:
            try:
                self._ensure_bash()
            except OSError:
                return  # no process to be had now; the next command tries again and says so

    @property
    def busy(self) -> bool:
        """Whether a command runs, or waits."""
        return self._phase in machine.WITH_COMMAND or bool(self._queue)

    @property
    def settled(self) -> bool:
        """Whether the state after the last command is known."""
        return self._phase in machine.READY and not self._queue

    def continue_from(self, cwd: str, state: State | None) -> None:
        """Become the shell that was saved; before the first command."""
        self.known.cwd, self.known.state = cwd, state
        self.warm_up()

    def _happen(self, event: str) -> None:
        self._phase = machine.following(machine.SHELL, self._phase, event)

    # -- one command -------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Run the next in the queue, once the one before has ended and bash has reported its state."""
        if self._phase in machine.READY and self._queue:
            self._run(self._queue.popleft(), attempt=1)

    def _next_soon(self) -> None:
        """Run it, but not at once: a long queue of quick commands would nest as deep as it is long."""
        self._loop.after(0, self._next if self._queue else self.warm_up)

    def _run(self, job: Exec, attempt: int) -> None:
        """Give a command to bash, or say why not."""
        if job.cancelled:
            job.finish(self._result(CANCELLED, 0.0, timed_out=False, cancelled=True))
        elif problem := _cwd_problem(job.cwd):
            job.fail("bad_input", problem)
        elif prepared := self._prepare(job, attempt):
            self._give(*prepared)
            return
        self._next_soon()

    def _prepare(self, job: Exec, attempt: int) -> tuple[Bash, Command] | None:
        """Return a bash and the command for it; or None if there cannot be any now, which the job is told."""
        while True:
            try:
                return self._ensure_bash(), self._make_command(job, attempt)
            except OSError as error:
                if attempt >= ATTEMPTS:
                    reason = f"the sandbox cannot start a command now: {error.strerror}; free some resources"
                    job.fail("unavailable", reason)
                    return None
            attempt += 1
            self._make_order()

    def _give(self, bash: Bash, command: Command) -> None:
        self._happen(machine.GIVE)
        self._command = command
        self._deadline = Deadline(self._loop, bash.pid, command, self._is_past_command, self._on_deadline_tick)
        command.job.on_cancel = self._deadline.pass_now
        self._timer = self._loop.after(TICK_SECONDS, self._look)
        bash.say(command.line)

    def _make_command(self, job: Exec, attempt: int) -> Command:
        """Make a command, with the pipes of the one before if they are as they were, else with new ones."""
        spare, self._spare = self._spare, None
        if spare is not None:
            try:
                return Command(self._loop, self._order, spare, job, attempt, self.known, self._on_report)
            except OSError:
                pass  # a command has changed them
        self._count += 1
        pipes = Pipes(self._loop, self._order, f"{self._directory}/{self._count}")
        return Command(self._loop, self._order, pipes, job, attempt, self.known, self._on_report)

    def _on_report(self, command: Command) -> None:
        """Take what came through a command's result or state pipe."""
        if command.dump is not None and command.report in machine.CLOSED:
            past_shadows = command.report == machine.UNCOVERED
            spoiled = self.known.take_report(command.dump, builtin_is_hidden=past_shadows)
            self._stay_awake()
            if spoiled and command.may(machine.ASK):
                self._ask(command, machine.ASK)
        if command is not self._command:
            return
        if self._phase in machine.WITH_COMMAND:
            self._advance(command)
        elif command.report in machine.CLOSED:
            self._end_report(command)
            self._next()

    def _advance(self, command: Command) -> None:
        """Note how the command ended, if that is known by now, and finish it once nothing of it is left."""
        if command.status is None:
            if command.may(machine.ASK_PAST):
                self._ask(command, machine.ASK_PAST)
            return
        command.end()
        if command.phase == machine.MISSED:
            self.kill()
        elif command.phase == machine.ENDED or self._nothing_left():
            self._finish(command.status)

    def _ask(self, command: Command, event: str) -> None:
        """Ask bash once more for a report that was abandoned or is unreadable; ``event`` says how."""
        if self._bash is None:
            return
        command.ask(event)
        for repair in (self._make_order, lambda: self._dismiss(command)):
            try:
                command.listen_again()
            except OSError:  # a command has removed, locked or filled our directory
                repair()
            else:
                self._bash.say(command.request_for_report(self.known.cwd))
                return

    def _dismiss(self, command: Command) -> None:
        """Have bash tell by its own exit how the command ended; it can do nothing else any more."""
        command.ask(machine.DISMISS)
        if self._bash is not None:
            self._bash.say(bash_text.LAST_WORDS)

    def paths(self) -> set[str]:
        """Return all files of this shell."""
        pipes = [command.pipes for command in (*self._background, self._command) if command is not None]
        pipes += [self._spare] if self._spare is not None else []
        own = {self._directory, self._restore_file, *[f"{self._directory}/{name}" for name in end_hook.NAMES]}
        return own.union(*[each.paths() for each in pipes if each.in_use])

    def _is_past_command(self) -> bool:
        """Say whether bash has left the command: its stdin is its own input again, and not the command's."""
        command, bash = self._command, self._bash
        return command is not None and bash is not None and command.begun() and bash.reads_its_input()

    def _nothing_left(self) -> bool:
        return self._deadline is None or self._deadline.nothing_left()

    def _on_deadline_tick(self) -> None:
        """Look, while what a called-off command started is being killed, whether that is done."""
        command = self._command
        if command is None or not self._nothing_left():
            return
        if command.phase not in machine.OPEN:
            self._finish(TIMED_OUT)
        elif command.may(machine.ASK) and self._is_past_command():
            self._ask_alone(command)

    def _look(self) -> None:
        """Look, every quarter of a second during a command, whether the shell is still able to end it."""
        command, bash = self._command, self._bash
        if command is None or bash is None:
            return
        self._timer = self._loop.after(TICK_SECONDS, self._look)
        if command.phase in machine.CALLED_OFF:
            return
        if not command.begun():
            if time.monotonic() - command.started > self._patience(command):
                self.kill()
        elif self._is_past_command() and not self._is_busy(bash):
            if command.may(machine.ASK):
                self._ask_alone(command)
            elif time.monotonic() - command.asked_at < ANSWER_SECONDS:
                return
            elif command.may(machine.DISMISS):
                self._dismiss(command)
            else:
                self.kill()

    def _ask_alone(self, command: Command) -> None:
        """Ask again when nothing of the command is left: what the shell starts now is its report."""
        if self._deadline is not None:
            self._deadline.spare_report()
        self._ask(command, machine.ASK)

    def _patience(self, command: Command) -> float:
        """Return how long to wait until bash begins on a command before the command is given to another one."""
        state = self.known.state
        if command.attempt > 1 or state is None or not state.has_prompt_hook:
            return BEGIN_SECONDS  # a new shell has no such hooks
        return min(HOOK_SECONDS, command.job.timeout / 2)

    def _is_busy(self, bash: Bash) -> bool:
        """Say whether bash computes, or has a child that it did not have before this command."""
        return children.computes(bash.pid) or (self._deadline is not None and bool(self._deadline.new_children()))

    def _finish(self, exit_code: int) -> None:
        """Tell the result. The report may still be to come."""
        command, bash = self._command, self._bash
        if command is None:
            return
        called_off = command.phase in machine.CALLED_OFF
        cancelled = called_off and command.job.cancelled
        started = 0.0 if command.phase == machine.NOT_RUN else command.started
        self._stop_watching()
        self._happen(machine.FINISH)
        command.drain(machine.TELL)
        if bash is not None:
            self.known.learn_directory(command.cwd, bash.pid)
        exit_code = TIMED_OUT if called_off else exit_code
        self.known.status = 0 if bash is None else exit_code
        code = CANCELLED if cancelled else exit_code
        result = self._result(code, started, timed_out=called_off and not cancelled, cancelled=cancelled)
        command.job.finish(result)
        self._restarted = False
        self._retire(command)
        self._next_soon()

    def _result(self, exit_code: int, started: float, *, timed_out: bool, cancelled: bool) -> dict[str, object]:
        """Return the result as it is sent. A command that never ran has no duration."""
        return {
            "exit_code": exit_code,
            "cwd": self.known.cwd,
            "timed_out": timed_out,
            "cancelled": cancelled,
            "shell_restarted": self._restarted,
            "duration_ms": int((time.monotonic() - started) * 1000) if started else 0,
        }

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _retire(self, command: Command) -> None:
        """Keep reading, and throwing away, what its background children write: they must not block or die of it."""
        command.pipes.end_outputs()
        self._background = [kept for kept in self._background if kept.pipes.in_use]
        self._background.append(command)
        if len(self._background) > MAX_BACKGROUND_PIPES:
            self._background.pop(0).pipes.close(outputs=True)
        if self._bash is None or command.report in machine.CLOSED:
            self._end_report(command)
        else:  # a shell that cannot tell its state, because it cannot even fork, is of no more use
            self._timer = self._loop.after(REPORT_SECONDS, self.kill)

    def _end_report(self, command: Command) -> None:
        """Let go of a command whose report is read or lost; its pipes are kept for the next one if possible."""
        self._command = None
        self._stop_watching()
        if self._bash is not None:
            self._happen(machine.REPORT)
        if self._bash is not None and self._spare is None and command.give_back_pipes():
            self._spare = command.pipes
            self._background.remove(command)
        else:
            command.pipes.close(outputs=False)

    def _stay_awake(self) -> None:
        """Talk to a bash with TMOUT set now and then, because it ends itself when nobody does."""
        if self._keep_awake is not None:
            self._keep_awake.cancel()
            self._keep_awake = None
        if self.known.state is not None and self.known.state.idle_timeout:
            self._keep_awake = self._loop.after(IDLE_SECONDS, self._say_nothing)

    def _say_nothing(self) -> None:
        if self._bash is not None and self._phase not in machine.WITH_COMMAND:
            self._bash.say("\n")
        self._stay_awake()

    # -- the process -------------------------------------------------------------------------------------------------

    def _ensure_bash(self) -> Bash:
        """Start bash if there is none. Raises OSError."""
        if self._bash is not None:
            return self._bash
        known, restore = self.known, ""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        end_hook.write(self._directory)
        if known.state is not None:
            end_hook.replace(self._restore_file, known.state.restore_script(known.cwd, self._env))
            restore = f"\\. {self._restore_file}\n"
        self._bash = Bash(self._loop, self._argv, self._env, known.cwd, self._on_exit)
        self._happen(machine.START)
        self._bash.say(f"{bash_text.PROLOGUE}{restore}{end_hook.keep(self._directory)}\n")
        known.has_end_hook = True
        return self._bash

    def kill(self) -> None:
        """End bash, if there is one. If there is something to do, another one follows."""
        if self._bash is not None:
            children.send_signal(self._bash.pid, children.KILL)

    def _on_exit(self, exit_code: int) -> None:
        """Go on after the end of bash, whether by itself, by a command or by us."""
        command = self._command if self._phase in machine.WITH_COMMAND else None
        self._bash = None
        self._restarted = True
        self._happen(machine.LOSE)
        for kept in self._background:  # no report of theirs can come any more
            kept.pipes.close(outputs=False)
        if self._spare is not None:
            self._spare.close(outputs=True)
            self._spare = None
        begun = command is not None and command.begun()
        self.known.take_last_words(begun=begun, cwd_is_borrowed=command is not None and command.job.cwd is not None)
        if command is None:
            self._command = None
            self._stop_watching()
            self._next()
            return
        command.lose()
        if command.phase in machine.CALLED_OFF and self._deadline is not None:
            self._deadline.shell_is_gone(lambda: self._finish(TIMED_OUT))
        elif begun:
            self._finish(exit_code)
        elif command.attempt < ATTEMPTS:
            self._try_again(command)
        else:
            self._finish(KILLED)

    def _try_again(self, command: Command) -> None:
        """Give a command that bash has not begun on to a new one, at the last attempt without the old state."""
        self.known.step_back(forget=command.attempt == ATTEMPTS - 1)
        self._stop_watching()
        self._command = None
        self._happen(machine.PASS_ON)
        command.drain(machine.PASS_ON)
        command.pipes.close(outputs=True)
        self._run(command.job, command.attempt + 1)


def _cwd_problem(cwd: str | None) -> str | None:
    if cwd is None:
        return None
    if not os.path.isdir(cwd):
        return f"cwd: {cwd} is no directory in this sandbox"
    if not os.access(cwd, os.X_OK):
        return f"cwd: the sandbox's user may not enter {cwd}"
    return None
