"""The directory and the pipes that a command goes through, and then the next one, if they are still as they were.

    cmd      what to run, for bash to source        out, err   what the command writes
    result   its status, as soon as it has ended    state      all that the shell is by then

To make them anew takes longer than a short command runs, so they are used again. But commands can remove, replace and
hold all of them: what is used again was looked at before, and whatever is odd about it, it is left and made anew.
"""

from __future__ import annotations

import os

from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.runner.loop import EACH_CHANGE, READ, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.write_order import WriteOrder

NAMES = ("cmd", "line", "status", "in", "out", "err", "result", "state")
_LASTING = ("cmd", "result", "state", "out", "err")
_OUTPUTS = ((STDOUT, "out"), (STDERR, "err"))
_FOR_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class Pipes:
    """Raises OSError when they cannot be made, or made ready once more."""

    def __init__(self, loop: Loop, order: WriteOrder, directory: str) -> None:
        self._loop = loop
        self._order = order
        self.directory = directory
        self._cmd = self.result = self.state = -1
        self.outputs: dict[int, int] = {}
        self._identity: dict[str, tuple[int, int]] = {}
        self._extra: list[str] = []
        self.ignore_everything()
        os.makedirs(directory, 0o700)
        try:
            self._make()
        except OSError:
            self.close(outputs=True)
            raise

    def _make(self) -> None:
        self._cmd = _create(f"{self.directory}/cmd")
        for name in ("result", "state", "out", "err"):
            os.mkfifo(f"{self.directory}/{name}", 0o600)
        # We hold a writing end of this one too: so it never hangs up, and speaks only when there is something in it.
        self.result = os.open(f"{self.directory}/result", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.watch(self.result, READ, lambda events: self._on_result(events))
        # Bash writes its state line by line. To be told of the end is enough, as long as it all fits into the pipe.
        self.state = os.open(f"{self.directory}/state", _FOR_READING)
        self._loop.watch(self.state, EACH_CHANGE, lambda events: self._on_state(events))
        for name in _LASTING:
            self._identity[name] = _identity(f"{self.directory}/{name}")
        self._order.follow([f"{self.directory}/{name}" for _stream, name in _OUTPUTS])

    # -- for one command ---------------------------------------------------------------------------------------------

    def take_up(
        self,
        cmd: bytes,
        on_result: Callable[[int], None],
        on_state: Callable[[int], None],
        on_output: Callable[[int, int], None],
    ) -> None:
        """Make ready for this command. The outputs are opened anew, so that they know of no earlier writer."""
        for name in _LASTING:
            if _identity(f"{self.directory}/{name}") != self._identity[name]:
                raise FileNotFoundError(f"{name} is another file than it was")
        os.ftruncate(self._cmd, 0)
        _write(self._cmd, cmd)
        self._order.start_over()
        for stream, name in _OUTPUTS:
            self.outputs[stream] = fd = os.open(f"{self.directory}/{name}", _FOR_READING)
            self._loop.watch(fd, READ, _of(stream, on_output))
        self._on_result, self._on_state = on_result, on_state

    def add_file(self, name: str, data: bytes) -> str:
        """One more file, for this command only."""
        path = f"{self.directory}/{name}"
        self._extra.append(name)
        fd = _create(path)
        try:
            _write(fd, data)
        finally:
            os.close(fd)
        return path

    def hush_output(self, stream: int) -> None:
        """Its last writer is gone; do not hear of that over and over."""
        self._loop.unwatch(self.outputs[stream])

    def close_output(self, stream: int) -> None:
        fd = self.outputs.pop(stream)
        self._loop.unwatch(fd)
        os.close(fd)

    def lay_down(self) -> bool:
        """The command is over and its report was read to the end. Whether another may come: nobody writes any more."""
        if self.outputs:
            return False
        self.ignore_everything()
        try:
            for name in self._extra:
                os.unlink(f"{self.directory}/{name}")
        except OSError:
            return False
        self._extra = []
        return True

    def ignore_everything(self) -> None:
        """What comes through them now belongs to no command; it is read, so that nobody is stuck with it."""
        self._on_result = lambda _events: _discard(self.result)
        self._on_state = lambda _events: _discard(self.state)

    # -- trouble -----------------------------------------------------------------------------------------------------

    def renew_state(self) -> None:
        """Another pipe in its place, which nobody has hung up, and which speaks of everything."""
        self._close_one("state")
        os.makedirs(self.directory, 0o700, exist_ok=True)
        path = f"{self.directory}/state"
        if os.path.lexists(path):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        self.state = os.open(path, _FOR_READING)
        self.listen_to_state()

    def listen_to_state(self) -> None:
        """From now on be told of each line and not only of the end."""
        self._loop.watch(self.state, READ, lambda events: self._on_state(events))

    def hush_state(self) -> None:
        self._loop.unwatch(self.state)

    # -- the end -----------------------------------------------------------------------------------------------------

    def paths(self) -> set[str]:
        """All that is ours on disk."""
        return {self.directory, *[f"{self.directory}/{name}" for name in NAMES]}

    @property
    def in_use(self) -> bool:
        """Whether a report may still come, or something in the background holds one of the outputs."""
        return bool(self.outputs) or self.state >= 0

    def close(self, *, outputs: bool) -> None:
        """Let go of everything but, if so asked, the outputs that background children still write to."""
        for name in ("_cmd", "result", "state"):
            self._close_one(name)
        if outputs:
            for stream in list(self.outputs):
                self.close_output(stream)
        try:
            for name in os.listdir(self.directory):
                os.unlink(f"{self.directory}/{name}")
            os.rmdir(self.directory)
        except OSError:
            return  # a command has been there; the directory goes when order is made, or with the sandbox

    def _close_one(self, attribute: str) -> None:
        fd = getattr(self, attribute)
        if fd >= 0:
            self._loop.unwatch(fd)
            os.close(fd)
            setattr(self, attribute, -1)


def _of(stream: int, on_output: Callable[[int, int], None]) -> Callable[[int], None]:
    return lambda events: on_output(stream, events)


def read(fd: int, size: int) -> bytes | None:
    """Bytes, ``b""`` at the end, or None when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None


def _discard(fd: int) -> None:
    if fd >= 0:
        read(fd, 1 << 16)


def _identity(path: str) -> tuple[int, int]:
    about = os.lstat(path)
    return about.st_dev, about.st_ino


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _write(fd: int, data: bytes) -> None:
    """From the beginning of the file."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:] if done else data, done)
