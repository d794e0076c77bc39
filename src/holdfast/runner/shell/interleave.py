"""Putting two streams back into the order in which they were written.

Two pipes have no common order. But the kernel can tell, in order, which of them was written to (``write_order``);
writes to the same one in a row are told as one. What is read of both is cut along what was told: programs write lines,
so each is taken to be a line, and the first of a stream gets what is left over.

What was read and what was told need not fit: between two looks more is written, and the kernel tells of a write a
moment after its bytes can be read. A program that writes one thing after the other is told of completely when it writes
the next, or has ended. So what is not clear yet is held back until then.
"""

from __future__ import annotations

MOST_LEFT_OVER = 64


def pieces(data: bytes, count: int) -> list[bytes]:
    """``data`` cut into at most ``count`` parts at the ends of its last lines."""
    parts: list[bytes] = []
    end = len(data)
    while len(parts) < count - 1:
        start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
        if start == 0:
            break
        parts.append(data[start:end])
        end = start
    parts.append(data[:end])
    parts.reverse()
    return parts


def merge(data: tuple[bytes, bytes], writes: list[int], last: int | None = None) -> list[tuple[int, bytes]]:
    """Both streams' bytes as ``(stream, piece)`` in the order of ``writes``; what none accounts for comes last.

    ``last`` is the stream whose bytes were passed on before: the first writes may be those of that time, told late.
    """
    if not data[0] or not data[1]:
        return [(stream, data[stream]) for stream in (0, 1) if data[stream]]
    waiting = tuple(pieces(data[stream], writes.count(stream)) for stream in (0, 1))
    merged: list[tuple[int, bytes]] = []
    late = writes.count(last) - len(waiting[last]) if last is not None else 0
    for stream in writes:
        if stream != last:
            last = None
        elif late > 0:
            late -= 1
            continue
        if waiting[stream]:
            merged.append((stream, waiting[stream].pop(0)))
    for stream in (0, 1):
        merged.extend((stream, piece) for piece in waiting[stream])
    return merged


class Held:
    """What was read of two streams, until it is clear in which order it was written."""

    def __init__(self) -> None:
        self._data = (bytearray(), bytearray())
        self._writes: list[int] = []
        self._last: int | None = None

    def add(self, data: tuple[bytes, bytes], writes: list[int]) -> None:
        """What was read, and then what was told."""
        for stream in (0, 1):
            self._data[stream].extend(data[stream])
        self._writes += writes

    @property
    def size(self) -> int:
        return len(self._data[0]) + len(self._data[1])

    @property
    def is_clear(self) -> bool:
        """Whether one stream alone has been written to: whatever comes next comes after that."""
        return not any(self._data[1 - stream] or 1 - stream in self._writes for stream in (0, 1) if self._data[stream])

    def release(self) -> list[tuple[int, bytes]]:
        """All of it, in the best order that is known."""
        merged = merge((bytes(self._data[0]), bytes(self._data[1])), self._writes, self._last)
        if merged:
            self._last = merged[-1][0]
            self._writes = self._not_yet_read()
        for stream in (0, 1):
            self._data[stream].clear()
        return merged

    def _not_yet_read(self) -> list[int]:
        """Writes that were told of after their stream had been read: if each is a line, those that are left over."""
        rest = [0, 0]
        for stream in (0, 1):
            if self._data[stream].endswith(b"\n") or not self._data[stream]:
                rest[stream] = self._writes.count(stream) - self._data[stream].count(b"\n")
        kept: list[int] = []
        for stream in reversed(self._writes):
            if rest[stream] <= 0 or len(kept) == MOST_LEFT_OVER:
                break
            rest[stream] -= 1
            kept.append(stream)
        return kept[::-1]
