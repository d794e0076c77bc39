"""A small VNC client: it types, asks for a size, and looks at the screen. RFB 3.8, raw pixels, no password."""

import socket
import struct
from types import TracebackType
from typing import Self

_SHIFT, _RETURN = 0xFFE1, 0xFF0D
_RAW, _EXTENDED_SIZE = 0, -308
_SHIFTED = '~!@#$%^&*()_+{}|:"<>?'


class VncClient:
    """A connection to a VNC server at a local port. ``width`` and ``height`` are those of the screen."""

    def __init__(self, port: int, seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        assert self._take(12) == b"RFB 003.008\n"
        self._socket.sendall(b"RFB 003.008\n")
        kinds = self._take(self._take(1)[0])
        assert kinds == b"\x01", f"it asks for a password: {kinds!r}"
        self._socket.sendall(b"\x01")
        assert self._take(4) == bytes(4)
        self._socket.sendall(b"\x01")  # others may stay
        self.width, self.height = struct.unpack(">HH", self._take(4))
        self._take(16)
        self.name = self._take(struct.unpack(">I", self._take(4))[0]).decode()
        self._socket.sendall(struct.pack(">BxHii", 2, 2, _RAW, _EXTENDED_SIZE))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def type(self, text: str) -> None:
        """Type a line as a person would, with Shift where it takes it."""
        for letter in text:
            shift = letter.isupper() or letter in _SHIFTED
            if shift:
                self._key(_SHIFT, True)
            code = _RETURN if letter == "\n" else ord(letter)
            self._key(code, True)
            self._key(code, False)
            if shift:
                self._key(_SHIFT, False)

    def click(self, x: int, y: int) -> None:
        """Move there and press the first button."""
        for buttons in (0, 1, 0):
            self._socket.sendall(struct.pack(">BBHH", 5, buttons, x, y))

    def resize(self, width: int, height: int) -> None:
        """Ask for another size of the screen, as a window does that is resized."""
        self.look()  # it must have said that it can
        screen = struct.pack(">IHHHHI", 0, 0, 0, width, height, 0)
        self._socket.sendall(struct.pack(">BxHHBx", 251, width, height, 1) + screen)

    def look(self) -> bytes:
        """Return the whole screen as pixels of four bytes, row by row."""
        incremental = 0
        while True:
            asked = (self.width, self.height)
            self._socket.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0, *asked))
            pixels = self._update()
            same = (self.width, self.height) == asked
            if pixels is not None and same:
                return pixels
            incremental = int(same)  # asked for the whole, it first tells its size, and then owes the rest

    def _update(self) -> bytes | None:
        """Return what one update shows; None if it only tells of a new size."""
        while (kind := self._take(1)[0]) != 0:
            if kind == 3:  # the text of its clipboard
                self._take(struct.unpack(">3xI", self._take(7))[0])
            else:
                assert kind == 2, f"unknown message {kind}"  # a bell
        canvas = bytearray(self.width * self.height * 4)
        seen = False
        for _ in range(struct.unpack(">xH", self._take(3))[0]):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self._take(12))
            if encoding == _EXTENDED_SIZE:
                self._take(16 * self._take(4)[0])
                self.width, self.height = width, height
                canvas = bytearray(width * height * 4)
                continue
            assert encoding == _RAW
            seen = True
            for row in range(height):
                start = ((y + row) * self.width + x) * 4
                canvas[start : start + width * 4] = self._take(width * 4)
        return bytes(canvas) if seen else None

    def _key(self, code: int, down: bool) -> None:
        self._socket.sendall(struct.pack(">BBxxI", 4, down, code))

    def _take(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self._socket.recv(count - len(parts))
            assert piece, "the VNC server hung up"
            parts += piece
        return bytes(parts)
