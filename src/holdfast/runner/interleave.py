"""Putting two streams back into the order in which they were written.

Two pipes have no common order. But the kernel can tell, in order, which of them was written to (``write_order``);
writes to the same one in a row are told as one run. What is read of both at once is cut along these runs: programs
write lines, so a run is taken to be a line, and the first run of a stream gets what is left over.
"""

from __future__ import annotations


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


def merge(data: tuple[bytes, bytes], runs: list[int]) -> list[tuple[int, bytes]]:
    """Both streams' bytes as ``(stream, piece)`` in the order of ``runs``; what no run accounts for comes last."""
    if not data[0] or not data[1]:
        return [(stream, data[stream]) for stream in (0, 1) if data[stream]]
    waiting = tuple(pieces(data[stream], runs.count(stream)) for stream in (0, 1))
    merged: list[tuple[int, bytes]] = []
    for stream in runs:
        if waiting[stream]:
            merged.append((stream, waiting[stream].pop(0)))
    for stream in (0, 1):
        merged.extend((stream, piece) for piece in waiting[stream])
    return merged
