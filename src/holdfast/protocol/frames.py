"""The frame: ``u32 header length | u32 body length | JSON header | raw body``, big-endian.

Binary stays binary: bodies are never encoded. ``Decoder`` is fed whatever a socket returned and gives back whole
frames; it refuses a frame over the limit as soon as the eight length bytes are there, before reading the rest.
"""

from __future__ import annotations

import struct

from holdfast.errors import ProtocolError
from holdfast.protocol import compact_json

MAX_HEADER = 1 << 20
MAX_BODY = 32 << 20

_LENGTHS = struct.Struct(">II")

Header = dict[str, object]
Frame = tuple[Header, bytes]


def encode(header: Header, body: bytes = b"") -> bytes:
    """Encode one frame as bytes. Raises ``ProtocolError`` if it is over the limit."""
    packed = compact_json.encode(header)
    check_lengths(len(packed), len(body))
    return _LENGTHS.pack(len(packed), len(body)) + packed + body


def check_lengths(header: int, body: int) -> None:
    if header > MAX_HEADER or body > MAX_BODY:
        raise ProtocolError(f"a frame of {header} + {body} bytes is over the limit of {MAX_HEADER} + {MAX_BODY}")


def decode_header(packed: bytes) -> Header:
    """Decode a frame's header. Raises ``ProtocolError`` unless it is a JSON object."""
    try:
        header = compact_json.decode(packed)
    except ValueError as error:
        raise ProtocolError(f"a frame header is not JSON: {packed[:80]!r}") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"a frame header is no JSON object: {packed[:80]!r}")
    return header


class Decoder:
    """Turns a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes, and return the frames that are complete now."""
        self.add(data)
        frames: list[Frame] = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        return frames

    def add(self, data: bytes) -> None:
        """Add bytes, which ``next`` returns one frame at a time."""
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next frame if it is complete; what follows it stays in the buffer."""
        if len(self._buffer) < _LENGTHS.size:
            return None
        header_length, body_length = _LENGTHS.unpack_from(self._buffer)
        check_lengths(header_length, body_length)
        body_start = _LENGTHS.size + header_length
        end = body_start + body_length
        if end > len(self._buffer):
            return None
        header = decode_header(bytes(self._buffer[_LENGTHS.size : body_start]))
        body = bytes(self._buffer[body_start:end])
        del self._buffer[:end]
        return header, body

    @property
    def waiting(self) -> int:
        """The number of bytes in the buffer."""
        return len(self._buffer)

    def rest(self) -> bytes:
        """Take out the bytes that followed the last frame: here a connection turns from frames to a raw stream."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
