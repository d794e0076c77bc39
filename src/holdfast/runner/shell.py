"""A stateful shell: one long-lived bash, its queue of commands, and its replacement when it dies.

Commands run one at a time. While one runs, one of four things happens: bash reports its end; the deadline passes
(``deadline.py``); bash itself ends; or bash goes idle without a report, because the command broke its means to report.
In every case the exec finishes and the next command finds a shell that works.
"""

from __future__ import annotations

import fcntl
import os
import time
from _collections import deque

from holdfast.runner import bash_text, linux, processes
from holdfast.runner.command import Command, _available
from holdfast.runner.deadline import Deadline
from holdfast.runner.execs import Exec
from holdfast.runner.loop import Loop

BEGIN_SECONDS = 5.0
TICK_SECONDS = 0.25
TIMED_OUT = 124
KILLED = 137
MAX_BACKGROUND_PIPES = 64
ATTEMPTS = 3
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
INPUT_BYTES = 1 << 20


class Shell:
    """One named shell of a session."""

    def __init__(self, loop: Loop, name: str, argv: list[str], env: dict[str, str], cwd: str, directory: str) -> None:
        self._loop = loop
        self._argv = argv
        self._env = env
        self._directory = f"{directory}/{name}"
        self.cwd = cwd
        self._state: bytes | None = None
        self._pid = 0
        self._input = -1
        self._count = 0
        self._queue: deque[Exec] = deque()
        self._command: Command | None = None
        self._deadline: Deadline | None = None
        self._earlier: list[int] = []
        self._restarted = False
        self._attempt = 0
        self._tick = None
        self._background: list[Command] = []
        os.makedirs(self._directory, 0o700, exist_ok=True)

    def submit(self, job: Exec) -> None:
        self._queue.append(job)
        self._next()

    def warm_up(self) -> None:
        """Start bash before the first command asks for it."""
        if not self._pid:
            self._spawn()

    # -- one command ---------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._command is None and self._queue:
            self._run(self._queue.popleft(), attempt=1)

    def _next_soon(self) -> None:
        """Not at once: a long queue of quick commands would nest as deep as it is long."""
        self._loop.after(0, self._next if self._queue else self.warm_up)

    def _run(self, job: Exec, attempt: int) -> None:
        problem = _cwd_problem(job.cwd)
        if problem:
            job.fail("bad_input", problem)
            self._next_soon()
            return
        self._attempt = attempt
        self._count += 1
        try:
            if not self._pid:
                self._spawn()
            command = Command(self._loop, f"{self._directory}/{self._count}", job, self._on_report)
        except OSError as error:
            job.fail("unavailable", f"the sandbox cannot start a command now: {error.strerror}; free some resources")
            self._next_soon()
            return
        self._command = command
        self._earlier = processes.children_of(self._pid)
        self._say(bash_text.command_lines(command.directory, job.env, job.cwd, self.cwd))
        self._deadline = Deadline(
            self._loop, self._pid, self._earlier, job.timeout, self._input_is_read, self._on_deadline_tick
        )
        self._tick = self._loop.after(TICK_SECONDS, self._look)
        command.watch_closely()

    def _say(self, text: str) -> None:
        """Write to bash's input. The pipe is empty between commands, and our lines fit into it."""
        try:
            os.write(self._input, text.encode("utf-8", "surrogateescape"))
        except OSError:
            pass  # bash is gone or stuck; its exit, or the tick, is on its way to us

    def _on_report(self, command: Command) -> None:
        """Something came through a command's result or state pipe."""
        if command.state is not None:
            self._state = command.state
        if command is self._command:
            self._advance(command)
        elif command.state_closed:
            command.close(outputs=False)

    def _advance(self, command: Command) -> None:
        if command.status is not None:
            if self._attempt == 1 and not command.ran():
                command.lost = True
                self._kill()
            elif self._deadline is None or not self._deadline.passed:
                self._finish(command.status)
            elif self._deadline.nothing_left():
                self._finish(TIMED_OUT)
        elif command.state_closed:
            self._rescue(command)

    def _rescue(self, command: Command) -> None:
        """The report is unreadable: a function called ``builtin`` stands in its way. Ask past it, once."""
        if not command.asked_again:
            command.listen_again()
            self._say(bash_text.report_past_shadows(command.directory))

    def _ask_again(self, command: Command) -> None:
        """The line was abandoned before its report."""
        command.listen_again()
        self._say(bash_text.report_again(command.directory, self.cwd if command.job.cwd else None))

    def _on_deadline_tick(self) -> None:
        """Called while what a timed-out command started is being killed."""
        command, deadline = self._command, self._deadline
        if command is None or deadline is None:
            return
        if deadline.nothing_left():
            if command.status is not None:
                self._finish(TIMED_OUT)
            elif self._input_is_read() and not command.asked_again:
                self._ask_again(command)

    def _input_is_read(self) -> bool:
        """Whether bash has taken all that we told it, so that it must be waiting for more."""
        try:
            return _available(self._input) == 0
        except OSError:
            return False

    def _look(self) -> None:
        """Every quarter of a second during a command: is the shell still able to end it?"""
        command = self._command
        if command is None:
            return
        self._tick = self._loop.after(TICK_SECONDS, self._look)
        if self._deadline is not None and self._deadline.passed:
            return
        if not command.begun():
            if time.monotonic() - command.started > BEGIN_SECONDS:
                self._kill()
        elif self._input_is_read() and command.status is None and not _busy_children(self._pid, self._earlier):
            # All was read, nothing runs, and still no report: interrupted, or unable to report any more.
            if command.asked_again:
                self._kill()
            else:
                self._ask_again(command)

    def _finish(self, exit_code: int) -> None:
        command = self._command
        if command is None:
            return
        timed_out = self._deadline is not None and self._deadline.passed
        self._stop_watching()
        command.drain()
        self.cwd = self._believable_cwd(command.cwd)
        command.job.finish(
            {
                "exit_code": TIMED_OUT if timed_out else exit_code,
                "cwd": self.cwd,
                "timed_out": timed_out,
                "shell_restarted": self._restarted,
                "duration_ms": int((time.monotonic() - command.started) * 1000),
            }
        )
        self._restarted = False
        self._retire(command)
        self._next_soon()

    def _stop_watching(self) -> None:
        self._command = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._tick is not None:
            self._tick.cancel()

    def _believable_cwd(self, reported: str | None) -> str:
        """What the shell says, if that is where it is; PWD is only a variable, and ``cd`` a word."""
        try:
            actual = os.readlink(f"/proc/{self._pid}/cwd") if self._pid else self.cwd
        except OSError:
            return reported or self.cwd
        if reported and reported.startswith("/"):
            try:
                if os.path.samestat(os.stat(reported), os.stat(f"/proc/{self._pid}/cwd")):
                    return reported
            except OSError:
                pass
        return actual

    def _retire(self, command: Command) -> None:
        """Keep reading, and throwing away, what its background children write: they must not block or die of it."""
        if command.state_closed or not self._pid:
            command.close(outputs=False)
        self._background = [kept for kept in self._background if kept.in_use]
        self._background.append(command)
        if len(self._background) > MAX_BACKGROUND_PIPES:
            self._background.pop(0).close(outputs=True)

    # -- the process ---------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(write_end)
            raise
        if pid == 0:
            self._become_bash(read_end)
        os.close(read_end)
        os.set_blocking(write_end, False)
        _enlarge(write_end)
        self._pid, self._input = pid, write_end
        self._loop.on_exit(pid, self._on_exit)
        self._say(bash_text.PROLOGUE)
        if self._state is not None:
            self._restore(self._state)

    def _become_bash(self, read_end: int) -> None:
        try:
            self._loop.forget()
            os.setsid()
            linux.adopt_orphans()
            null = os.open(processes.NULL_DEVICE, os.O_RDWR)
            for fd, source in ((0, read_end), (1, null), (2, null)):
                os.dup2(source, fd)
            os.closerange(3, 4096)
            processes.reset_signals()
            _change_directory(self.cwd, self._env.get("HOME", "/"))
            os.execve(self._argv[0], self._argv[1:], self._env)
        finally:
            os._exit(127)

    def _restore(self, state: bytes) -> None:
        path = f"{self._directory}/restore"
        with open(path, "wb") as file:
            file.write(bash_text.restore_script(state, self.cwd))
        self._say(f"\\. {path}\n")

    def _kill(self) -> None:
        if self._pid:
            processes.send_signal(self._pid, 9)

    def _on_exit(self, status: int) -> None:
        """Bash has ended, by itself, by a command or by us."""
        command, deadline = self._command, self._deadline
        os.close(self._input)
        self._pid, self._input = 0, -1
        self._restarted = True
        for kept in self._background:  # no report of theirs can come any more
            kept.close(outputs=False)
        if command is None:
            return
        if deadline is not None and deadline.passed:
            deadline.shell_is_gone(lambda: self._finish(TIMED_OUT))
        elif command.begun() and not command.lost:
            self._finish(_exit_code(status))
        elif self._attempt < ATTEMPTS:
            self._try_again(command)
        else:
            self._finish(KILLED)

    def _try_again(self, command: Command) -> None:
        """It died before it began on the command: safe to give the command to a new one, at last without old state."""
        if self._attempt == ATTEMPTS - 1 and not command.lost:
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


def _enlarge(pipe: int) -> None:
    """Room for the longest lines (a command with a large environment), so that a write never has to wait."""
    try:
        fcntl.fcntl(pipe, SET_PIPE_SIZE, INPUT_BYTES)
    except OSError:
        pass  # the user's allowance of pipe memory is used up; the default holds 64 KB


def _change_directory(*candidates: str) -> None:
    for path in candidates:
        try:
            os.chdir(path)
            return
        except OSError:
            continue


def _busy_children(pid: int, earlier: list[int]) -> bool:
    """Whether the shell has a child that it did not have before this command."""
    return any(child not in earlier for child in processes.children_of(pid))


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
