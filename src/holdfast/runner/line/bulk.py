"""Work on files, large ones and many: each task is done by a forked child on a connection of its own.

The child may block while the runner's loop goes on: the kernel does the back-pressure. It ends when the host hangs up.
"""

from __future__ import annotations

import os

from holdfast.runner.line.dial import Dialer
from holdfast.runner.loop import Loop

MANY_DESCRIPTORS = 1 << 16


class Bulk:
    """Starts the child processes that work on files."""

    def __init__(self, loop: Loop, dialer: Dialer) -> None:
        self._loop = loop
        self._dialer = dialer
        self.children = 0
        """How many are at work; each has a connection of its own."""

    def open(self, stream: str) -> None:
        """Start a worker for the one task that the host will ask for on the connection. See ``runner.tasks``."""
        pid = os.fork()
        if pid:
            self.children += 1
            self._loop.on_exit(pid, self._ended)
            return
        try:
            self._loop.forget()
            self._serve(stream)
            os._exit(0)
        finally:
            os._exit(1)

    def _ended(self, _status: int) -> None:
        """Count a child that has ended. The host gets its result on the stream."""
        self.children -= 1

    def _serve(self, stream: str) -> None:
        # A worker can live long: an end of a pipe that it holds by accident would keep a command from seeing the end.
        os.closerange(3, MANY_DESCRIPTORS)
        connection = self._dialer.connect_stream(stream)
        from holdfast.runner.tasks import serve  # here, so that only workers pay for it

        serve(connection)
