"""One command on its way through the shell: its pipes, what they carry, and the shell's report at the end."""

from __future__ import annotations

import os
import select
import time

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner import bash_text
from holdfast.runner.interleave import merge
from holdfast.runner.loop import HANG_UP, READ, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.execs import Exec
    from holdfast.runner.write_order import WriteOrder

CHUNK = 1 << 18
STATE_LIMIT = 16 << 20
LINE_BYTES = 3000
PATIENCE_SECONDS = 0.005
NOTHING_BUT_THE_END = 0  # epoll always tells of a hang-up
FILES = ("cmd", "line", "status", "in", "out", "err", "result", "state")
_NAMES = ("out", "err")


class Command:
    """The files and pipes of one exec, in a directory of its own that only the runner can list."""

    def __init__(
        self,
        loop: Loop,
        order: WriteOrder,
        directory: str,
        job: Exec,
        last_status: int,
        on_report: Callable[[Command], None],
    ) -> None:
        self._loop = loop
        self._order = order
        self.directory = directory
        self.job = job
        self.started = time.monotonic()
        self.finished = False
        self.status: int | None = None
        self.cwd: str | None = None
        self.state: bytes | None = None
        self._begun = False
        self.reported = False
        self.asked_again = False
        self.asked_past_shadows = False
        self.never_ran = False
        self._on_report = on_report
        self._record = bytearray()
        self._dump = bytearray()
        os.makedirs(directory, 0o700)
        _write_file(f"{directory}/cmd", job.cmd + b"\n")
        if last_status:
            _write_file(f"{directory}/status", f"\\builtin return {last_status}\n".encode())
        if job.stdin:
            _write_file(f"{directory}/in", job.stdin)
        self.stdin = f"{directory}/in" if job.stdin else "/dev/null"
        self._result = self._open_pipe("result", self._on_result)
        # Bash writes its state line by line. To be told of the end is enough, as long as it all fits into the pipe.
        self._state = self._open_pipe("state", self._on_state, NOTHING_BUT_THE_END)
        self._outputs = {stream: self._open_pipe(_NAMES[stream], self._on_output) for stream in (STDOUT, STDERR)}
        self._ended: set[int] = set()
        order.follow([f"{directory}/{name}" for name in _NAMES])

    def _open_pipe(self, name: str, handler: Callable[[int], None], events: int = READ) -> int:
        path = f"{self.directory}/{name}"
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.watch(fd, events, handler)
        return fd

    # -- output ------------------------------------------------------------------------------------------------------

    def _on_output(self, events: int) -> None:
        data = (self._take(STDOUT), self._take(STDERR))
        if not self.finished:
            self._keep(data)
            if self.job.output.is_ahead():
                self._pause()
                return
        if events & HANG_UP and not data[0] and not data[1]:
            self._look_for_ends()

    def _pause(self) -> None:
        """Somebody follows the output and is slower than the command: let the command wait for them."""
        for fd in self._outputs.values():
            self._loop.unwatch(fd)
        self.job.output.wait_for_room(self._read_on)

    def _read_on(self) -> None:
        for stream, fd in self._outputs.items():
            if stream not in self._ended:
                self._loop.watch(fd, READ, self._on_output)

    def _take(self, stream: int) -> bytes:
        fd = self._outputs.get(stream, -1)
        return (_read(fd, CHUNK) or b"") if fd >= 0 else b""

    def _keep(self, data: tuple[bytes, bytes]) -> None:
        """Add to the output what was read of both streams at once, in the order in which it was written."""
        self._begun = self._begun or bool(data[0] or data[1])
        for stream, piece in merge(data, self._order.runs()):
            self.job.output.add(stream, piece)

    def _look_for_ends(self) -> None:
        """Stop watching pipes whose last writer is gone; only after the command's end can no other come."""
        poll = select.poll()
        for fd in self._outputs.values():
            poll.register(fd, select.POLLIN)
        hung_up = {fd for fd, events in poll.poll(0) if events & select.POLLHUP and not events & select.POLLIN}
        for stream, fd in list(self._outputs.items()):
            if fd in hung_up:
                self._ended.add(stream)
                self._loop.unwatch(fd)
                if self.finished:
                    os.close(self._outputs.pop(stream))

    def give(self, line: str) -> str:
        """What to say to bash for ``line``: itself, or how to source it from a file when it is too long for a pipe."""
        if len(line) <= LINE_BYTES:
            return line
        _write_file(f"{self.directory}/line", line.encode("utf-8", "surrogateescape"))
        return f"\\. {self.directory}/line\n"

    def begun(self) -> bool:
        """Whether the shell has ever opened the command's output, which it does just before the first word runs.

        A command that has not begun may be given to another shell; one that has, never. So this must be certain:
        the kernel's memory of a pipe is, and no command can undo it.
        """
        self._begun = self._begun or any(self._was_opened(stream) for stream in self._outputs)
        return self._begun

    def _was_opened(self, stream: int) -> bool:
        """A pipe that never had a writer reads as ended, yet nobody has hung up."""
        fd = self._outputs[stream]
        data = _read(fd, CHUNK)
        if data:
            self.job.output.add(stream, data)
        if data is None or data or stream in self._ended:
            return True
        poll = select.poll()
        poll.register(fd, 0)
        return bool(poll.poll(0))

    def drain(self) -> None:
        """Take what is in the pipes now. What comes later is from the background and belongs to no one."""
        for _ in range(64):  # a pipe holds 64 KB unless somebody made it larger; a flood in the background never ends
            data = (self._take(STDOUT), self._take(STDERR))
            if not data[0] and not data[1]:
                break
            self._keep(data)
        self.finished = True
        for stream in self._ended & set(self._outputs):
            os.close(self._outputs.pop(stream))

    # -- the shell's report ------------------------------------------------------------------------------------------

    def _on_result(self, events: int) -> None:
        data = _read(self._result, CHUNK)
        if data:
            self._record += data
            self._loop.after(PATIENCE_SECONDS, self._watch_state)
            if self._parse_record(bytes(self._record)):
                self._on_report(self)
        elif events & HANG_UP:
            self._loop.unwatch(self._result)

    def _on_state(self, events: int) -> None:
        while data := _read(self._state, CHUNK):
            if len(self._dump) <= STATE_LIMIT:
                self._dump += data
        if events & HANG_UP:
            self._loop.unwatch(self._state)
            self._finish_dump()

    def _watch_state(self) -> None:
        """From now on read as it comes: a large state does not fit into the pipe."""
        if self._state >= 0 and not self.reported:
            self._loop.watch(self._state, READ, self._on_state)

    def _finish_dump(self) -> None:
        self.reported = True
        dump, self._dump = bytes(self._dump), bytearray()
        parts = dump.split(b"\0", 2)
        if len(parts) == 3 and len(dump) <= STATE_LIMIT and parts[2].count(b"\0") == bash_text.STATE_SECTIONS:
            self.state = parts[2]
            if self.status is None:
                self._parse_record(dump)
        self._on_report(self)

    def _parse_record(self, data: bytes) -> bool:
        """Exit status and directory, if that is what it is: a shadowed ``builtin`` writes anything."""
        parts = data.split(b"\0", 2)
        if len(parts) < 3 or not parts[0].isdigit() or len(parts[0]) > 3:
            return False
        self.status = int(parts[0])
        self.cwd = os.fsdecode(parts[1])
        return True

    def listen_again(self) -> None:
        """Wait for another report, on a new pipe: the old one has been hung up."""
        self.reported = False
        self.asked_again = True
        if self._state >= 0:
            self._loop.unwatch(self._state)
            os.close(self._state)
        self._state = -1
        os.makedirs(self.directory, 0o700, exist_ok=True)
        path = f"{self.directory}/state"
        if os.path.lexists(path):
            os.unlink(path)
        self._state = self._open_pipe("state", self._on_state)

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> bool:
        """Whether its report is still coming, or something in the background holds one of the output pipes."""
        return bool(self._outputs) or self._state >= 0

    def paths(self) -> set[str]:
        """All that is ours on disk."""
        return {self.directory, *[f"{self.directory}/{name}" for name in FILES]}

    def close(self, *, outputs: bool) -> None:
        """Let go of everything but, if so asked, the output pipes that background children still write to."""
        for fd in (self._result, self._state):
            if fd >= 0:
                self._loop.unwatch(fd)
                os.close(fd)
        self._result = self._state = -1
        if outputs:
            for fd in self._outputs.values():
                self._loop.unwatch(fd)
                os.close(fd)
            self._outputs = {}
        try:
            for name in os.listdir(self.directory):
                os.unlink(f"{self.directory}/{name}")
            os.rmdir(self.directory)
        except OSError:
            return  # a command has been there; the directory goes when order is made, or with the sandbox


def _write_file(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def _read(fd: int, size: int) -> bytes | None:
    """Bytes, ``b""`` at the end, or None when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
