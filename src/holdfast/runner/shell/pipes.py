"""The directory and the pipes that a command goes through, and then the next one, if they are still as they were.

    cmd      what to run, for bash to source         out, err   what the command writes
    begun    emptied by bash when it runs that       result     its status, as soon as it has ended
                                                     state      all that the shell is by then

To make them anew takes longer than a short command runs, so they are used again. But commands can remove, replace and
hold all of them: what is used again was looked at before, and whatever is odd about it, it is left and made anew.
"""

from __future__ import annotations

import os
import struct

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner import linux
from holdfast.runner.lean import Callable
from holdfast.runner.loop import EACH_CHANGE, READ, Loop

NAMES = ("cmd", "begun", "line", "status", "in", "out", "err", "result", "state")
_LASTING = ("cmd", "begun", "out", "err", "result", "state")
_OUTPUTS = ((STDOUT, "out"), (STDERR, "err"))
_CHUNK = 1 << 16
_READ_END = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_END = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
_INOTIFY_EVENT = struct.Struct("iIII")
_WRITES = 2  # IN_MODIFY


class WriteOrder:
    """Tells which of a command's two outputs was written to, in order, as the kernel reports it by inotify.

    One instance serves a shell for its lifetime: making one is cheap, but closing one waits for the whole kernel. Where
    inotify cannot be had, it just knows nothing.
    """

    def __init__(self) -> None:
        self._fd = linux.inotify()
        self._streams: dict[int, int] = {}
        self._asked = False

    def follow(self, pipes: list[str]) -> None:
        """Follow these pipes from now on, and forget earlier ones."""
        self._streams = {}
        for stream, path in enumerate(pipes):
            try:
                self._streams[linux.watch(self._fd, path, _WRITES)] = stream
            except OSError:
                continue

    def start_over(self) -> None:
        """Forget what was written before, because the same pipes carry another command now."""
        if self._asked:
            self.runs()
            self._asked = False

    def runs(self) -> list[int]:
        """The streams that were written to since the last call; several writes to one in a row may count as one."""
        self._asked = True
        if self._fd < 0:
            return []
        try:
            events = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return []
        whole = len(events) - len(events) % _INOTIFY_EVENT.size
        numbers = [event[0] for event in _INOTIFY_EVENT.iter_unpack(events[:whole])]
        return [self._streams[number] for number in numbers if number in self._streams]


class Pipes:
    """The files and pipes of one command. Raises OSError when they cannot be made, or used once more."""

    def __init__(self, loop: Loop, order: WriteOrder, directory: str) -> None:
        self._loop = loop
        self._order = order
        self.directory = directory
        self._cmd = self._begun = self.result = self.state = -1
        self.outputs: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._identity: dict[str, tuple[int, int]] = {}
        self._extra: list[str] = []
        self._paused = False
        self._ignore_everything()
        os.makedirs(directory, 0o700)
        try:
            self._make()
        except OSError:
            self.close(outputs=True)
            raise

    def _make(self) -> None:
        self._cmd = _create(f"{self.directory}/cmd")
        self._begun = _create(f"{self.directory}/begun")
        for name in ("out", "err", "result", "state"):
            os.mkfifo(f"{self.directory}/{name}", 0o600)
        for stream, name in _OUTPUTS:
            self.outputs[stream] = os.open(f"{self.directory}/{name}", _READ_END)
        self._hold_outputs()  # first: gVisor calls a pipe that nobody writes to hung up, even if nobody ever did
        for stream, fd in self.outputs.items():
            self._loop.watch(fd, READ, self._listener(stream))
        self.result = os.open(f"{self.directory}/result", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.watch(self.result, READ, lambda _events: self._on_result())
        # Bash writes its state line by line. To be told of the end is enough, as long as it all fits into the pipe.
        self.state = os.open(f"{self.directory}/state", _READ_END)
        self._loop.watch(self.state, EACH_CHANGE, lambda events: self._on_state(events))
        for name in _LASTING:
            self._identity[name] = _identity(f"{self.directory}/{name}")
        self._order.follow([f"{self.directory}/{name}" for _stream, name in _OUTPUTS])

    def _hold_outputs(self) -> None:
        """Open the outputs for writing, too, so that bash can come and go without an event, which would wake us."""
        for stream, name in _OUTPUTS:
            self._held[stream] = os.open(f"{self.directory}/{name}", _WRITE_END)

    def _listener(self, stream: int) -> Callable[[int], None]:
        def on_event(events: int) -> None:
            if events & READ:
                self._on_output()
            elif stream not in self._held:  # nobody holds it any more
                self.close_output(stream)

        return on_event

    def pause_outputs(self) -> None:
        """Stop reading, so that the command waits for a follower that is slower than it."""
        self._paused = True
        for fd in self.outputs.values():
            self._loop.unwatch(fd)

    def resume_outputs(self) -> None:
        """Read again, if that was paused; whoever has the pipes by now."""
        if self._paused:
            self._paused = False
            for stream, fd in self.outputs.items():
                self._loop.watch(fd, READ, self._listener(stream))

    # -- for one command ---------------------------------------------------------------------------------------------

    def take_up(
        self,
        cmd: bytes,
        on_result: Callable[[], None],
        on_state: Callable[[int], None],
        on_output: Callable[[], None],
    ) -> None:
        """Prepare the pipes for this command."""
        if len(self.outputs) < len(_OUTPUTS):
            raise FileNotFoundError("an output was hung up")
        for name in _LASTING:
            if _identity(f"{self.directory}/{name}") != self._identity[name]:
                raise FileNotFoundError(f"{name} is another file than it was")
        _write(self._cmd, cmd)
        if os.fstat(self._cmd).st_size != len(cmd):
            os.ftruncate(self._cmd, len(cmd))
        os.ftruncate(self._begun, 1)
        self._order.start_over()
        self._on_result, self._on_state, self._on_output = on_result, on_state, on_output

    def begun(self) -> bool:
        """Say whether bash has opened the outputs. That a file was emptied is not undone by removing it."""
        return os.fstat(self._begun).st_size == 0

    def take_back(self) -> None:
        """Make sure that a bash that has not begun yet finds nothing to run.

        It empties ``begun`` before it reads ``cmd``; where it reads ``cmd`` earlier, for ``eval``, it runs nothing if
        it cannot open ``begun``. So whoever finds, after this, that it has not begun can be sure that it never will.
        """
        os.ftruncate(self._cmd, 0)
        begun = f"{self.directory}/begun"
        try:
            if os.path.lexists(begun):
                os.unlink(begun)
            os.symlink("cmd/nothing", begun)
        except OSError:
            return  # a command has been there

    def add_file(self, name: str, data: bytes) -> str:
        """Write one more file, for this command only, and return its path."""
        path = f"{self.directory}/{name}"
        self._extra.append(name)
        fd = _create(path)
        try:
            _write(fd, data)
        finally:
            os.close(fd)
        return path

    def end_outputs(self) -> None:
        """Close the outputs at the end of the command; those that its background children hold stay open for them."""
        self._release_held()
        ended = [stream for stream, fd in self.outputs.items() if read(fd, _CHUNK) == b""]
        if len(ended) == len(_OUTPUTS) and self._can_hold_outputs():
            return  # for the next command
        for stream in ended:
            self.close_output(stream)

    def _can_hold_outputs(self) -> bool:
        try:
            self._hold_outputs()
        except OSError:  # the command has removed them
            self._release_held()
        return bool(self._held)

    def close_output(self, stream: int) -> None:
        fd = self.outputs.pop(stream)
        self._loop.unwatch(fd)
        os.close(fd)

    def lay_down(self) -> bool:
        """Clean up once the report is read to the end; True if nobody writes any more, so another command may come."""
        if not self._held:
            return False
        self._ignore_everything()
        try:
            for name in self._extra:
                os.unlink(f"{self.directory}/{name}")
        except OSError:
            return False
        self._extra = []
        return True

    def _ignore_everything(self) -> None:
        """Read and drop what comes through them now: it belongs to no command, and nobody must be stuck with it."""
        self._on_result = lambda: _discard(self.result)
        self._on_state = lambda _events: _discard(self.state)
        self._on_output = lambda: _discard(*self.outputs.values())

    # -- trouble -----------------------------------------------------------------------------------------------------

    def renew_state(self) -> None:
        """Put another state pipe in its place, which nobody has hung up, and watch it for everything."""
        if self.state >= 0:
            self._loop.unwatch(self.state)
            os.close(self.state)
            self.state = -1
        os.makedirs(self.directory, 0o700, exist_ok=True)
        path = f"{self.directory}/state"
        if os.path.lexists(path):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        self.state = os.open(path, _READ_END)
        self.listen_to_state()

    def listen_to_state(self) -> None:
        """Watch the state pipe for each line from now on, and not only for the end."""
        self._loop.watch(self.state, READ, lambda events: self._on_state(events))

    def hush_state(self) -> None:
        self._loop.unwatch(self.state)

    # -- the end -----------------------------------------------------------------------------------------------------

    def paths(self) -> set[str]:
        """Return all paths that are ours on disk."""
        return {self.directory, *[f"{self.directory}/{name}" for name in NAMES]}

    @property
    def in_use(self) -> bool:
        """Whether a report may still come, or something in the background holds one of the outputs."""
        return bool(self.outputs) or self.state >= 0

    def close(self, *, outputs: bool) -> None:
        """Close and remove everything; without ``outputs``, those that background children still write to stay open."""
        self._close_files()
        if outputs or self._held:
            self._release_held()
            for stream in list(self.outputs):
                self.close_output(stream)
        try:
            for name in os.listdir(self.directory):
                os.unlink(f"{self.directory}/{name}")
            os.rmdir(self.directory)
        except OSError:
            return  # a command has been there; the directory goes when order is made, or with the sandbox

    def _close_files(self) -> None:
        for fd in (self._cmd, self._begun, self.result, self.state):
            if fd >= 0:
                self._loop.unwatch(fd)
                os.close(fd)
        self._cmd = self._begun = self.result = self.state = -1

    def _release_held(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])


def read(fd: int, size: int) -> bytes | None:
    """Bytes, ``b""`` at the end, or None when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None


def _discard(*fds: int) -> None:
    for fd in fds:
        read(fd, _CHUNK)


def _identity(path: str) -> tuple[int, int]:
    about = os.lstat(path)
    return about.st_dev, about.st_ino


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _write(fd: int, data: bytes) -> None:
    """Write from the beginning of the file."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:] if done else data, done)
