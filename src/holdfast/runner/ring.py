"""A bounded buffer for a command's output: it keeps the newest bytes of both streams, in the order they came.

It lives in the sandbox's own memory, so it must cost little more than it keeps, also for output that changes streams at
every byte: the bytes are in one buffer, and each run of one stream is four more bytes in another.
"""

from __future__ import annotations

import struct

from holdfast.protocol.messages import MOST_SEGMENTS

_RUN = struct.Struct(">I")  # as the protocol packs it: the length shifted left, the stream in the lowest bit


class RingCursor:
    """A reader's position, and the run of one stream that it is in. Only a ring moves it."""

    def __init__(self, position: int, run: int, run_start: int) -> None:
        self.position = position
        self.run = run
        self.run_start = run_start


class Ring:
    """The output of one command. ``written`` counts all bytes ever, so positions stay valid when old bytes are
    dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.written = 0
        self._data = bytearray()
        self._runs = bytearray()
        self._runs_dropped = 0

    @property
    def start(self) -> int:
        """The position of the oldest byte that is still here."""
        return self.written - len(self._data)

    @property
    def held(self) -> int:
        return len(self._data)

    @property
    def truncated(self) -> bool:
        return self.written > self.held

    def append(self, stream: int, data: bytes) -> None:
        self.written += len(data)
        if len(data) > self.limit:
            data = data[-self.limit :]
        if not data:
            return
        self._data += data
        self._extend_run(stream, len(data))
        while self.held > self.limit or len(self._runs) > MOST_SEGMENTS * _RUN.size:
            self._drop_from_first_run()

    def _extend_run(self, stream: int, length: int) -> None:
        if self._runs:
            (last,) = _RUN.unpack_from(self._runs, len(self._runs) - _RUN.size)
            if last & 1 == stream:
                _RUN.pack_into(self._runs, len(self._runs) - _RUN.size, last + (length << 1))
                return
        self._runs += _RUN.pack(length << 1 | stream)

    def _drop_from_first_run(self) -> None:
        """Drop the oldest run, or the part of it that is over the limit."""
        (first,) = _RUN.unpack_from(self._runs)
        length, surplus = first >> 1, self.held - self.limit
        if 0 < surplus < length:
            _RUN.pack_into(self._runs, 0, first - (surplus << 1))
            del self._data[:surplus]
        else:
            del self._runs[: _RUN.size]
            del self._data[:length]
            self._runs_dropped += 1

    def cursor(self, position: int) -> RingCursor:
        """Return a cursor at this position; a position beyond the end means the end."""
        position = min(max(position, 0), self.written)
        offset = self.start
        run = self._runs_dropped
        last = run + len(self._runs) // _RUN.size - 1
        for (packed,) in _RUN.iter_unpack(self._runs):
            if position < offset + (packed >> 1) or run == last:  # the last one may still grow
                break
            offset += packed >> 1
            run += 1
        return RingCursor(position, run, offset)

    def read(self, cursor: RingCursor, limit: int) -> tuple[int, bytes]:
        """Read the next bytes of one stream at the cursor, which moves on; none at the end.

        Bytes that were dropped before they could be read are skipped; the cursor's position shows how many.
        """
        if cursor.run < self._runs_dropped or cursor.position < self.start:
            cursor.position, cursor.run, cursor.run_start = self.start, self._runs_dropped, self.start
        while cursor.position < self.written:
            (packed,) = _RUN.unpack_from(self._runs, (cursor.run - self._runs_dropped) * _RUN.size)
            # The oldest run may have lost its beginning, and is then shorter than it was.
            begin = self.start if cursor.run == self._runs_dropped else cursor.run_start
            end = begin + (packed >> 1)
            if cursor.position < end:
                at = cursor.position - self.start
                data = bytes(self._data[at : at + min(limit, end - cursor.position)])
                cursor.position += len(data)
                return packed & 1, data
            cursor.run, cursor.run_start = cursor.run + 1, end
        return 0, b""

    def packed_segments(self) -> bytes:
        """Return the runs as ``protocol.messages.pack_segments`` would write them."""
        return bytes(self._runs)

    def content(self) -> bytes:
        return bytes(self._data)
