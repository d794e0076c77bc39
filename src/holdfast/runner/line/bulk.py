"""Transfers of large files, and all other work on files: each is done by a forked child on a connection of its own.

The child may block: the kernel does the back-pressure, the runner's loop goes on, and when the host hangs up the child
just ends.
"""

from __future__ import annotations

import os

from holdfast.protocol import frames
from holdfast.runner import files
from holdfast.runner.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.lean import sockets
    from holdfast.runner.line.dial import Dialer
    from holdfast.runner.loop import Loop
    from holdfast.runner.tasks.sight import Sight

CHUNK = 1 << 20
MANY_DESCRIPTORS = 1 << 16


class Bulk:
    """Starts the child processes that work on files."""

    def __init__(self, loop: Loop, dialer: Dialer) -> None:
        self._loop = loop
        self._dialer = dialer
        self.children = 0
        """How many are at work; each has a connection of its own."""

    def pull(self, path: str, limit: int, stream: str, sight: Sight = os) -> None:
        """Send a file to the host: a header frame with its length, then the bytes."""
        fd, size = files.open_regular(path, sight)
        try:
            self._fork(lambda: self._send_file(fd, min(size, limit), size, stream))
        finally:
            os.close(fd)

    def push(self, path: str, mode: int | None, size: int, stream: str) -> None:
        """Write ``size`` bytes from the host into a file, then send the result in a frame."""
        self._fork(lambda: self._receive_file(path, mode, size, stream))

    def open(self, stream: str) -> None:
        """Start a worker for the one task that the host will ask for on the connection. See ``runner.tasks``."""
        self._fork(lambda: self._serve(stream))

    def _fork(self, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid:
            self.children += 1
            self._loop.on_exit(pid, self._ended)
            return
        try:
            self._loop.forget()
            work()
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

    def _send_file(self, fd: int, count: int, size: int, stream: str) -> None:
        connection = self._dialer.connect_stream(stream)
        connection.sendall(frames.encode({"size": count, "truncated": size > count}))
        sent = 0
        while sent < count:
            step = os.sendfile(connection.fileno(), fd, sent, min(count - sent, CHUNK))
            if step == 0:
                return  # the file has shrunk; the host sees the stream end too early
            sent += step

    def _receive_file(self, path: str, mode: int | None, size: int, stream: str) -> None:
        connection = self._dialer.connect_stream(stream)
        try:
            with files.Replacement(path, mode) as replacement:
                if _copy(connection, replacement, size):
                    replacement.commit()
                    connection.sendall(frames.encode({}))
        except Refused as error:
            connection.sendall(frames.encode({"error": {"code": error.code, "message": error.message}}))
            while connection.recv(CHUNK):
                pass  # closing on unread bytes would reset the connection, and take our answer with it


def _copy(connection: sockets.socket, replacement: files.Replacement, size: int) -> bool:
    buffer = memoryview(bytearray(CHUNK))
    while size > 0:
        count = connection.recv_into(buffer, min(size, CHUNK))
        if count == 0:
            return False
        replacement.write(buffer[:count])
        size -= count
    return True
