"""One background program of a session, with pipes or a terminal; its output is kept after its end."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
import time

from holdfast.protocol.frames import Header
from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner.lean import Callable
from holdfast.runner.loop import READ, WRITE, Loop
from holdfast.runner.output import ProgramOutput
from holdfast.runner.processes import children
from holdfast.runner.processes.input import Input

CHUNK = 1 << 18
DRAIN_READS = 64  # at the end: what is in the pipes, and not what a child in the background goes on to write
END_OF_INPUT = b"\x04"
TELL = 3
"""The child's descriptor for reporting why it could not start; it is closed when the program starts."""


class StartRequest:
    """A program to start. ``size`` is the size of its terminal; None gives it pipes."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, size: tuple[int, int] | None, wants_input: bool
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.size = size
        self.wants_input = wants_input


class Process:
    """One program and its output. ``started(errno)`` is called with 0 once it runs, or with the reason why not."""

    def __init__(
        self, loop: Loop, process_id: str, label: str, request: StartRequest, limit: int, started: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self.process_id = process_id
        self.label = label
        self.has_terminal = request.size is not None
        self.output = ProgramOutput(limit)
        self.told_of_cuts = ""
        self.takes_group_along = False
        """When it ends, what is left of its group is killed."""
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
            self._open(request, theirs)
            failure, told = os.pipe2(os.O_CLOEXEC)
            theirs.append(told)
            self.pid = os.fork()
        except OSError:
            for fd in {*theirs, *self._outputs, self._input_fd} - {-1}:
                os.close(fd)
            raise
        if self.pid == 0:
            _become(loop, request, theirs)
        for fd in set(theirs):
            os.close(fd)
        loop.on_exit(self.pid, self._ended)
        loop.watch(failure, READ, lambda _events: self._on_start(failure, started))
        self._watch_outputs()

    def _open(self, request: StartRequest, theirs: list[int]) -> None:
        """Open the pipes or the terminal; our ends go into ``self``, the program's into ``theirs``."""
        if request.size is not None:
            ours, slave = _open_terminal(*request.size)
            self._outputs[ours] = STDOUT
            self._input_fd = ours
            theirs += [slave, slave, slave]
        elif request.wants_input:
            stdin, self._input_fd = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._input_fd, False)
            theirs.append(stdin)
        else:
            theirs.append(os.open(children.NULL_DEVICE, os.O_RDONLY | os.O_CLOEXEC))
        if self._input_fd >= 0:
            self.input = Input(self._input_fd, self._watch_input)
        if request.size is None:
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
        """Read one piece; False if there is none now, or never again."""
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
        """Give the program the end of its input. On a terminal that is a key, and input may go on after it."""
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
            _resize_terminal(self._input_fd, rows, columns)

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def signal(self, signum: int) -> None:
        """Send a signal to the program and its process group; it is no error if it has ended already.

        KILL also goes to its descendants in other groups, because nothing else would end them; but not if it has a
        terminal, because what was started in a terminal may be meant to outlive it.
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
        if self.takes_group_along:
            _kill_group(self.pid)
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
        """Read what is in the pipes now."""
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
        """Kill the program and close all descriptors."""
        self.signal(children.KILL)
        for fd in list(self._outputs):
            self._close_output(fd)
        self._close_input_pipe()


def _kill_group(leader: int) -> None:
    """Kill what a program that has just ended has left of its group. Mostly it was alone."""
    try:
        os.killpg(leader, children.KILL)
    except OSError:
        return


def _open_terminal(rows: int, columns: int) -> tuple[int, int]:
    """Open a pseudo-terminal, and return our end and the program's. Raises OSError if there is none left."""
    ours, theirs = os.openpty()
    _resize_terminal(ours, rows, columns)
    os.set_blocking(ours, False)
    return ours, theirs


def _resize_terminal(terminal: int, rows: int, columns: int) -> None:
    """Change the size; the kernel sends SIGWINCH to the programs in the foreground."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _become(loop: Loop, request: StartRequest, theirs: list[int]) -> None:
    """Become the program, in the child. It never returns; an error is reported by its number."""
    try:
        children.enter(loop, theirs)
        if request.size is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # make it the controlling terminal of the new session
        os.chdir(request.cwd)
        os.write(TELL, str(_execute(request.argv, request.env)).encode())
    except OSError as error:
        os.write(TELL, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _execute(argv: list[str], env: dict[str, str]) -> int:
    """Execute the program, which is searched in PATH. It returns only if that fails, with the error number.

    ``os.execvpe`` does the same, but imports modules that the runner does without.
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
