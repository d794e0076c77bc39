"""Reads the kernel's inotify events as plain data; one instance for one worker."""

from __future__ import annotations

import os
import select
import struct

from holdfast.runner import linux
from holdfast.runner.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.runner.tasks.sight import Sight

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
OVERFLOW, IGNORED, IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NOT_UNLINKED = 0x01000000, 0x04000000
_ALL = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16
PAIR_SECONDS = 0.05
"""How long to wait for the second event of a rename. The kernel queues both at once, but a read can end in between."""


class WatchEvent:
    """One event: ``watch`` is the number of the folder, ``mask`` what happened, ``name`` the entry of the folder."""

    __slots__ = ("cookie", "mask", "name", "watch")

    def __init__(self, watch: int, mask: int, cookie: int, name: str) -> None:
        self.watch = watch
        self.mask = mask
        self.cookie = cookie
        self.name = name


class Inotify:
    def __init__(self, sight: Sight = os) -> None:
        self._sight = sight
        self.fd = linux.inotify()
        if self.fd < 0:
            message = (
                "the kernel's limit on inotify instances is reached; raise fs.inotify.max_user_instances on the host"
            )
            raise Refused("too_many_watches", message)

    def add(self, folder: str) -> int:
        """Watch a folder. Raises OSError: ENOSPC at the kernel's limit, ENOENT or ENOTDIR if it is no folder now."""
        return self._watch(folder, _ALL | _ONLY_FOLDERS | _NOT_UNLINKED)

    def add_departures(self, folder: str) -> int:
        """Watch only for what leaves this folder. Raises OSError."""
        return self._watch(folder, DELETE | MOVED_FROM | _ONLY_FOLDERS)

    def _watch(self, folder: str, mask: int) -> int:
        if self._sight is os:
            return linux.watch(self.fd, folder, mask)
        found = self._sight.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            return linux.watch(self.fd, f"/proc/self/fd/{found}", mask)  # the very folder that was looked at
        finally:
            os.close(found)

    def remove(self, watch: int) -> None:
        linux.unwatch(self.fd, watch)

    def read(self) -> list[WatchEvent]:
        """Read what has happened since the last call; the two events of a rename always come together."""
        events = list(_parse(self._take()))
        while events and events[-1].mask & MOVED_FROM and self._more(PAIR_SECONDS):
            events += _parse(self._take())
        return events

    def _take(self) -> bytes:
        try:
            return os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return b""

    def _more(self, seconds: float) -> bool:
        return bool(select.select([self.fd], [], [], seconds)[0])

    @property
    def is_drained(self) -> bool:
        return not self._more(0)


def _parse(data: bytes) -> Iterator[WatchEvent]:
    position = 0
    while position < len(data):
        watch, mask, cookie, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        name = data[position : position + length].rstrip(b"\0")
        position += length
        yield WatchEvent(watch, mask, cookie, os.fsdecode(name))
