"""The input of a program: what callers send is written as fast as the program reads it."""

from __future__ import annotations

import os

from holdfast.runner.lean import Callable, deque

Done = Callable[[bool], None]
"""Called with True when the program's pipe has taken all bytes, with False when they will never be read."""

HELD_BYTES = 1 << 20
KEEP_NAMES = 256
"""How many writes are remembered by their names: more than are ever under way when a connection is cut."""


class Input:
    """A pipe or terminal that a program reads from. The ``Process`` owns the descriptor, and watches it for us."""

    def __init__(self, fd: int, watch: Callable[[bool], None]) -> None:
        self._fd = fd
        self._watch = watch
        self._queue: deque[tuple[memoryview, Done]] = deque()
        self._held = 0
        self._close: Callable[[], None] | None = None
        self._named: dict[str, bool | list[Done]] = {}
        """Writes by their names: the result of each, or the callbacks that wait for it."""
        self.closed = False
        self.taken = 0
        """How many bytes the program's pipe has taken, ever. A client asks for this if it was cut off while writing."""

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

    def write_once(self, name: str | None, data: bytes, first: Done, done: Done) -> None:
        """Write, unless there was a write of this name before: then only report what became of that one.

        So a client that was cut off can ask again. ``first`` is called once per write, ``done`` once per call. A write
        without a name is always done.
        """
        known = None if name is None else self._named.get(name)
        if isinstance(known, bool):
            done(known)
        elif known is not None:
            known.append(done)
        else:
            self._write_named(name, data, [first, done])

    def _write_named(self, name: str | None, data: bytes, waiting: list[Done]) -> None:
        def tell(taken: bool) -> None:
            if name is not None:
                self._named[name] = taken
            for waiter in waiting:
                waiter(taken)

        if name is not None:
            self._forget_names()
            self._named[name] = waiting
        self.write(data, tell)

    def _forget_names(self) -> None:
        """Forget the oldest names, but not those of writes that are under way."""
        for name, known in self._named.items() if len(self._named) >= KEEP_NAMES else ():
            if isinstance(known, bool):
                del self._named[name]
                return

    def close_after(self, close: Callable[[], None]) -> None:
        """Take no more input, and call ``close`` when the rest is written."""
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
        """Give up, because the program is gone, and call all waiting callbacks."""
        self.closed = True
        self._close = None
        waiting, self._queue, self._held = self._queue, deque(), 0
        for _data, done in waiting:
            done(False)
