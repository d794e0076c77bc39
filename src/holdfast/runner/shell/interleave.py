"""Puts two streams back into the order in which they were written.

Two pipes have no common order. But the kernel can tell, in order, which of them was written to (``pipes.WriteOrder``);
writes to the same one in a row are told as one. What is read of both is cut along what was told: programs write lines,
so each is taken to be a line, and the first of a stream gets what is left over.

What was read and what was told need not fit: between two looks more is written, and the kernel tells of a write a
moment after its bytes can be read. A program that writes one thing after the other is told of completely when it writes
the next, or has ended. So what is not clear yet is held back until then, or, if the program writes without a pause,
until it is certain that nothing unread was written before it.

This much is promised: each stream by itself is exact. If one program at a time writes whole lines, and never two in a
row to the same stream, their order is exact too. Otherwise a line can be attributed to a neighbouring run of the same
stream, because a run has no length; bytes are never lost.
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


class Held:
    """What was read of two streams, until it is clear in which order it was written."""

    def __init__(self) -> None:
        self._data = (bytearray(), bytearray())
        self._writes: list[int] = []
        self._last: int | None = None
        self._owed = False

    def add(self, data: tuple[bytes, bytes], writes: list[int]) -> None:
        """Add what was read, and then what was told."""
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

    def release(self, *, told_only: bool = False) -> list[tuple[int, bytes]]:
        """Return all of it, as ``(stream, piece)`` in the best order that is known.

        ``told_only`` is for a program that does not pause: nothing is passed on that comes after a write that was told
        of and not read yet. It is right some time after the last bytes were added, when all of them have been told of.
        """
        if not self.size:
            return []
        if self._owed and self._writes:
            if self._writes[0] == self._last:
                del self._writes[0]  # that of the piece before, told late
            self._owed = False
        waiting = [pieces(bytes(self._data[stream]), self._writes.count(stream)) for stream in (0, 1)]
        merged: list[tuple[int, bytes]] = []
        unread: list[int] = []
        for number, stream in enumerate(self._writes):
            if waiting[stream] and self._data[stream]:
                merged.append((stream, waiting[stream].pop(0)))
            elif told_only:
                unread = self._writes[number:]
                break
            else:
                unread.append(stream)
        if not told_only:  # what no write accounts for comes last
            rest = [(stream, piece) for stream in (0, 1) for piece in waiting[stream] if piece]
            self._owed, merged = self._owed or bool(rest), merged + rest
        self._writes = unread[-MOST_LEFT_OVER:]
        for stream, piece in merged:
            del self._data[stream][: len(piece)]
            self._last = stream
        return merged
