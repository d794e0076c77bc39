"""A bounded buffer for a command's output: keeps the newest bytes of both streams, in the order they came."""

from __future__ import annotations

from holdfast.runner.lean import deque


class Ring:
    """Output of one command. ``written`` counts all bytes ever, so positions stay valid when old ones are dropped."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.written = 0
        self.held = 0
        self._pieces: deque[tuple[int, bytearray]] = deque()

    @property
    def truncated(self) -> bool:
        return self.written > self.held

    def append(self, stream: int, data: bytes) -> None:
        self.written += len(data)
        if len(data) > self.limit:
            data = data[-self.limit :]
        if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) < 1 << 16:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((stream, bytearray(data)))
        self.held += len(data)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self.held > self.limit:
            piece = self._pieces[0][1]
            surplus = self.held - self.limit
            if len(piece) <= surplus:
                self._pieces.popleft()
                self.held -= len(piece)
            else:
                del piece[:surplus]
                self.held -= surplus

    def segments(self) -> list[tuple[int, int]]:
        return [(stream, len(piece)) for stream, piece in self._pieces]

    def content(self) -> bytes:
        return b"".join(piece for _stream, piece in self._pieces)
