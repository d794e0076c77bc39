"""Frames on a blocking socket, for a worker."""

from __future__ import annotations

import time

from holdfast.protocol import frames
from holdfast.runner.lean import sockets

BUSY_SECONDS = 5.0


class HungUp(Exception):
    """The host has closed the connection, so nobody wants the result any more."""


class Channel:
    """Sends and receives frames. A received body is valid until the next one is received."""

    def __init__(self, connection: sockets.socket) -> None:
        self.connection = connection
        self._buffer = bytearray(1 << 16)
        self._told = time.monotonic()

    def send(self, header: frames.Header, body: bytes = b"") -> None:
        self.connection.sendall(frames.encode(header, body))

    def refuse(self, code: str, message: str) -> None:
        self.send({"error": {"code": code, "message": message}})

    def busy(self) -> None:
        """Send a sign of life; to be called now and then in long work. It raises ``HungUp`` if the host is gone."""
        now = time.monotonic()
        if now - self._told > BUSY_SECONDS:
            self._told = now
            self.send({"busy": True})

    def receive(self) -> tuple[frames.Header, memoryview]:
        lengths = self._read(8)
        header, body = int.from_bytes(lengths[:4], "big"), int.from_bytes(lengths[4:], "big")
        frames.check_lengths(header, body)
        decoded = frames.decode_header(bytes(self._read(header)))
        return decoded, self._read(body)

    def _read(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        wanted = memoryview(self._buffer)[:size]
        rest = wanted
        while rest:
            count = self.connection.recv_into(rest)
            if count == 0:
                raise HungUp
            rest = rest[count:]
        return wanted

    def wait_for_end(self) -> None:
        """Wait until the host closes. If we closed first, with unread bytes, the host could lose our answer."""
        try:
            while self.connection.recv(1 << 16):
                pass
        except OSError:
            return
