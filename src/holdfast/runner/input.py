"""The way into a program: what its callers send, written as fast as it reads, and no faster."""

from __future__ import annotations

import os

from holdfast.runner.lean import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Done = Callable[[bool], None]
    """Told True when the program's pipe has taken it all, False when nobody will ever read it."""

HELD_BYTES = 1 << 20


class Input:
    """A pipe or terminal that a program reads from. The descriptor belongs to the process, which watches it for us."""

    def __init__(self, fd: int, watch: Callable[[bool], None]) -> None:
        self._fd = fd
        self._watch = watch
        self._queue: deque[tuple[memoryview, Done]] = deque()
        self._held = 0
        self._close: Callable[[], None] | None = None
        self.closed = False
        self.taken = 0
        """How many bytes the program's pipe has taken, ever: who was cut off while writing asks for this."""

    @property
    def is_full(self) -> bool:
        return self._held > HELD_BYTES

    def write(self, data: bytes, done: Done) -> None:
        if self.closed:
            done(False)
            return
        self._queue.append((memoryview(data), done))
        self._held += len(data)
        self.flush()

    def close_after(self, close: Callable[[], None]) -> None:
        """Nothing more will be written; ``close`` is called when the rest is out."""
        if not self.closed:
            self.closed = True
            self._close = close
            self.flush()

    def flush(self) -> None:
        while self._queue:
            data, done = self._queue[0]
            try:
                sent = os.write(self._fd, data) if data else 0
            except BlockingIOError:
                self._watch(True)
                return
            except OSError:  # nobody reads it any more
                self.abandon()
                return
            self._held -= sent
            self.taken += sent
            if sent < len(data):
                self._queue[0] = (data[sent:], done)
            else:
                self._queue.popleft()
                done(True)
        self._watch(False)
        if self._close is not None:
            close, self._close = self._close, None
            close()

    def abandon(self) -> None:
        """The program is gone: whoever waits is told so."""
        self.closed = True
        self._close = None
        waiting, self._queue, self._held = self._queue, deque(), 0
        for _data, done in waiting:
            done(False)
