"""Which of a command's two output pipes was written to, in order, as the kernel tells it by inotify.

One inotify instance serves a shell for its lifetime: making one is cheap, but closing one waits for the whole kernel.
"""

from __future__ import annotations

import os
import struct

from holdfast.runner import linux

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16


class WriteOrder:
    """Follows two pipes at a time, which one command writes to. Where inotify cannot be had, it just knows nothing."""

    def __init__(self) -> None:
        self._fd = linux.inotify()
        self._streams: dict[int, int] = {}
        self._asked = False

    def follow(self, pipes: list[str]) -> None:
        """From now on tell of these; earlier ones are forgotten."""
        self._streams = {}
        for stream, path in enumerate(pipes):
            watch = linux.watch_writes(self._fd, path) if self._fd >= 0 else -1
            if watch >= 0:
                self._streams[watch] = stream

    def start_over(self) -> None:
        """The same pipes carry another command now; what was written before is no longer of interest."""
        if self._asked:
            self.runs()
            self._asked = False

    def runs(self) -> list[int]:
        """The streams that were written to since the last call; several writes to one in a row may count as one."""
        self._asked = True
        if self._fd < 0:
            return []
        try:
            events = os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return []
        whole = len(events) - len(events) % _EVENT.size
        numbers = [event[0] for event in _EVENT.iter_unpack(events[:whole])]
        return [self._streams[number] for number in numbers if number in self._streams]
