"""A program in the background: started with pipes or a terminal, followed, written to, signalled, kept at its end."""

from __future__ import annotations

import errno
import os
import time

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner.loop import READ, WRITE
from holdfast.runner.output import Output
from holdfast.runner.processes import children, terminal
from holdfast.runner.processes.input import Input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.protocol.frames import Header
    from holdfast.runner.loop import Loop

CHUNK = 1 << 18
DRAIN_READS = 64  # at the end: what is in the pipes, and not what a child in the background goes on to write
END_OF_INPUT = b"\x04"
TELL = 3
"""The child's descriptor for telling why it could not start; closed when it does."""


class Wish:
    """What to start. ``size`` is that of its terminal, None for pipes."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, size: tuple[int, int] | None, wants_input: bool
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.size = size
        self.wants_input = wants_input


class Process:
    """One program, and all that it writes. ``started(errno)`` is called once it runs, or with why it does not."""

    def __init__(
        self, loop: Loop, process_id: str, label: str, wish: Wish, limit: int, started: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self.process_id = process_id
        self.label = label
        self.has_terminal = wish.size is not None
        self.output = Output(limit)
        self.told_of_cuts = ""
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self._waiters: list[Callable[[], None]] = []
        self._outputs: dict[int, int] = {}  # our descriptor -> the stream that it carries
        self._reading = True
        self._writing = False
        self.input: Input | None = None
        self._input_fd = -1
        theirs: list[int] = []  # the program's stdin, stdout and stderr, and where it tells that it could not start
        try:
            self._open(wish, theirs)
            failure, told = os.pipe2(os.O_CLOEXEC)
            theirs.append(told)
            self.pid = os.fork()
        except OSError:
            for fd in {*theirs, *self._outputs, self._input_fd} - {-1}:
                os.close(fd)
            raise
        if self.pid == 0:
            _become(loop, wish, theirs)
        for fd in set(theirs):
            os.close(fd)
        loop.on_exit(self.pid, self._ended)
        loop.watch(failure, READ, lambda _events: self._on_start(failure, started))
        self._watch_outputs()

    def _open(self, wish: Wish, theirs: list[int]) -> None:
        """Our ends into ``self``, the program's into ``theirs``."""
        if wish.size is not None:
            ours, slave = terminal.open_terminal(*wish.size)
            self._outputs[ours] = STDOUT
            self._input_fd = ours
            theirs += [slave, slave, slave]
        elif wish.wants_input:
            stdin, self._input_fd = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._input_fd, False)
            theirs.append(stdin)
        else:
            theirs.append(os.open(children.NULL_DEVICE, os.O_RDONLY | os.O_CLOEXEC))
        if self._input_fd >= 0:
            self.input = Input(self._input_fd, self._watch_input)
        if wish.size is None:
            for stream in (STDOUT, STDERR):
                ours, end = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(ours, False)
                self._outputs[ours] = stream
                theirs.append(end)

    def _on_start(self, failure: int, started: Callable[[int], None]) -> None:
        data = os.read(failure, 16)
        self._loop.unwatch(failure)
        os.close(failure)
        started(int(data or b"0"))

    # -- output ------------------------------------------------------------------------------------------------------

    def _watch_outputs(self) -> None:
        self._reading = True
        for fd in self._outputs:
            self._watch(fd)

    def _watch(self, fd: int) -> None:
        events = READ if self._reading and fd in self._outputs else 0
        if self._writing and fd == self._input_fd:
            events |= WRITE
        if events:
            self._loop.watch(fd, events, lambda ready: self._on_ready(fd, ready))
        else:
            self._loop.unwatch(fd)  # even without any event epoll would tell of a hang-up, again and again

    def _on_ready(self, fd: int, events: int) -> None:
        if events & ~READ and fd == self._input_fd and self.input is not None:
            self.input.flush()
        if fd in self._outputs and self._reading and self._read(fd) and self.output.is_ahead():
            self._pause()

    def _pause(self) -> None:
        self._reading = False
        for fd in self._outputs:
            self._watch(fd)
        self.output.wait_for_room(self._watch_outputs)

    def _read(self, fd: int) -> bool:
        """One piece; False when there is none now, or never again."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a terminal says that its last program has gone
            data = b""
        if data:
            self.output.add(self._outputs[fd], data)
            return True
        self._close_output(fd)
        return False

    def _close_output(self, fd: int) -> None:
        del self._outputs[fd]
        if fd == self._input_fd and self.input is not None:
            self.input.abandon()
            self._input_fd = -1
        self._loop.unwatch(fd)
        os.close(fd)

    # -- input -------------------------------------------------------------------------------------------------------

    def _watch_input(self, writing: bool) -> None:
        self._writing = writing
        if self._input_fd >= 0:
            self._watch(self._input_fd)

    def close_input(self) -> None:
        """The program sees the end of its input. On a terminal that is a key, and input may go on after it."""
        if self.input is None:
            return
        if self.has_terminal:
            self.input.write(END_OF_INPUT, lambda _taken: None)
        else:
            self.input.close_after(self._close_input_pipe)

    def _close_input_pipe(self) -> None:
        if self._input_fd >= 0:
            self._loop.unwatch(self._input_fd)
            os.close(self._input_fd)
            self._input_fd = -1

    def resize(self, rows: int, columns: int) -> None:
        if self.has_terminal and self._input_fd >= 0:
            terminal.resize(self._input_fd, rows, columns)

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def signal(self, signum: int) -> None:
        """To the program and all of its group; one that has ended already is fine.

        KILL also to those of its descendants that lead groups of their own: nobody else would end them. What was
        started in a terminal may be meant to outlive it.
        """
        if not self.running:
            return
        below = children.halted(self.pid) if signum == children.KILL and not self.has_terminal else set()
        try:
            os.killpg(self.pid, signum)
        except (ProcessLookupError, PermissionError):
            children.send_signal(self.pid, signum)  # it does not lead its group yet
        for pid in below:
            children.send_signal(pid, signum)

    def when_ended(self, waiter: Callable[[], None]) -> None:
        if self.running:
            self._waiters.append(waiter)
        else:
            waiter()

    def stop_waiting(self, waiter: Callable[[], None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def _ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._drain()
        self.exit_code = code if code >= 0 else 128 - code
        self.ended_at = time.time()
        if self.input is not None:
            self.input.abandon()
            if not self.has_terminal:
                self._close_input_pipe()
        self.output.finish(self.describe())
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    def _drain(self) -> None:
        """Take what is in the pipes now."""
        for fd in list(self._outputs):
            for _ in range(DRAIN_READS):
                if not self._read(fd):
                    break

    def describe(self) -> Header:
        return {
            "process_id": self.process_id,
            "pid": self.pid,
            "label": self.label,
            "terminal": self.has_terminal,
            "running": self.running,
            "exit_code": self.exit_code,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "written": self.output.ring.written,
            "kept_from": self.output.ring.start,
            "input": 0 if self.input is None else self.input.taken,
        }

    def discard(self) -> None:
        """Kill it and let go of everything."""
        self.signal(children.KILL)
        for fd in list(self._outputs):
            self._close_output(fd)
        self._close_input_pipe()


def _become(loop: Loop, wish: Wish, theirs: list[int]) -> None:
    """In the child. Never returns: what cannot be done is told by its number."""
    try:
        loop.forget()
        os.setsid()
        for fd, source in enumerate(theirs):
            os.dup2(source, fd, inheritable=fd < TELL)
        if wish.size is not None:
            terminal.control(0)
        os.closerange(TELL + 1, 4096)
        children.reset_signals()
        children.become_expendable()
        os.chdir(wish.cwd)
        os.write(TELL, str(_execute(wish.argv, wish.env)).encode())
    except OSError as error:
        os.write(TELL, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _execute(argv: list[str], env: dict[str, str]) -> int:
    """Become the program, looked for in PATH; returns only if that fails, with the number of why.

    ``os.execvpe`` does the same with modules that the runner does not carry.
    """
    name, problem = argv[0], errno.ENOENT
    places = [""] if "/" in name else [f"{place or '.'}/" for place in env.get("PATH", os.defpath).split(":")]
    for place in places:
        try:
            os.execve(place + name, argv, env)  # noqa: S606 - this is what was asked for
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                problem = error.errno or problem
    return problem
