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
    """One frame as bytes. Raises ``ProtocolError`` if it is over the limit."""
    packed = compact_json.encode(header)
    check_lengths(len(packed), len(body))
    return _LENGTHS.pack(len(packed), len(body)) + packed + body


def check_lengths(header: int, body: int) -> None:
    if header > MAX_HEADER or body > MAX_BODY:
        raise ProtocolError(f"a frame of {header} + {body} bytes is over the limit of {MAX_HEADER} + {MAX_BODY}")


def decode_header(packed: bytes) -> Header:
    """A frame's header; raises ``ProtocolError`` unless it is a JSON object."""
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
        """Take bytes in; give out the frames that are complete now."""
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        while (frame_end := self._frame_end(start)) is not None:
            frames.append(self._cut(start, frame_end))
            start = frame_end
        if start:
            del self._buffer[:start]
        return frames

    def rest(self) -> bytes:
        """Bytes that followed the last frame; how a connection turns from frames to a raw stream."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _frame_end(self, start: int) -> int | None:
        if len(self._buffer) - start < _LENGTHS.size:
            return None
        header, body = _LENGTHS.unpack_from(self._buffer, start)
        check_lengths(header, body)
        end: int = start + _LENGTHS.size + header + body
        return end if end <= len(self._buffer) else None

    def _cut(self, start: int, end: int) -> Frame:
        header_length, _ = _LENGTHS.unpack_from(self._buffer, start)
        header_start = start + _LENGTHS.size
        body_start = header_start + header_length
        header = decode_header(bytes(self._buffer[header_start:body_start]))
        return header, bytes(self._buffer[body_start:end])
