"""Tells the host what changes in a folder, and in all below it if asked, until the host hangs up.

A folder that appears is watched at once and then looked through: what was put into it before the watch was set is told
from that look, and not a second time if the kernel tells of it too.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import struct

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner import linux
from holdfast.runner.files import SCRATCH
from holdfast.runner.lean import Iterator
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel
from holdfast.runner.tasks.polling import LOOK_SECONDS, SILENT, Polled, file_system_of
from holdfast.runner.tasks.sight import Sight, sight_of

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
OVERFLOW, IGNORED, IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NOT_UNLINKED = 0x01000000, 0x04000000
_ALL = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16
PAIR_SECONDS = 0.05
"""How long to wait for the second event of a rename. The kernel queues both at once, but a read can end in between."""
MAX_FOLDERS = 8192
KEEP_CHANGES = 256
"""Changes told in one frame."""


def watch(channel: Channel, header: Header) -> None:
    """Send a frame with ``ready``, then frames with ``changes``, until the watched path itself is gone."""
    path, sight = fields.text(header, "path").rstrip("/") or "/", sight_of(header)
    sight.stat(path)
    watched = _watched(path, sight, recursive=bool(header.get("recursive")))
    channel.send({"ready": True})
    ready = select.poll()
    ready.register(channel.connection.fileno(), select.POLLIN | select.POLLHUP)
    patience = None
    if isinstance(watched, Watched):
        ready.register(watched.kernel.fd, select.POLLIN)
    else:
        patience = LOOK_SECONDS * 1000
    while not watched.ended:
        for fd, _ in ready.poll(patience):
            if fd == channel.connection.fileno():
                return  # the host says nothing during a watch, so this is its end
        changes = watched.read()
        for start in range(0, len(changes), KEEP_CHANGES):
            channel.send({"changes": changes[start : start + KEEP_CHANGES]})
    channel.send({"end": True})


def _watched(path: str, sight: Sight, *, recursive: bool) -> Watched | Polled:
    """Return the changes as the kernel reports them; or by looking, where it accepts a watch and then never reports."""
    kind = Polled if file_system_of(os.path.realpath(path), "/proc/self/mounts") in SILENT else Watched
    return kind(path, sight, recursive=recursive)


class Watched:
    """A tree under watch. A single file is watched by its folder, so that it may be replaced and still be seen."""

    def __init__(self, path: str, sight: Sight = os, *, recursive: bool) -> None:
        self.kernel = Inotify(sight)
        self._sight = sight
        self.ended = False
        is_folder = stat.S_ISDIR(sight.stat(path).st_mode)
        self._only = None if is_folder else os.path.basename(path)
        self._top = path if is_folder else os.path.dirname(path)
        self._recursive = recursive and is_folder
        self._folders: dict[int, str] = {}
        self._found: set[str] = set()
        self._changes: list[Header] = []
        self._above = self._watch_above()
        self._top_watch = self._add(self._top)
        if self._recursive:
            self._look_through(self._top, tell=False)

    def read(self) -> list[Header]:
        """Return the changes since the last time."""
        self._changes = []
        events = self.kernel.read()
        moves = {event.cookie: event for event in events if event.mask & MOVED_TO}
        sources = {event.cookie for event in events if event.mask & MOVED_FROM}
        for event in events:
            if event.mask & MOVED_TO and event.cookie in sources:
                continue  # told with its first half
            self._take(event, moves.get(event.cookie) if event.mask & MOVED_FROM else None)
        if self.kernel.is_drained:
            self._found.clear()
        return self._changes

    # -- events ----------------------------------------------------------------------------------------------------

    def _take(self, event: WatchEvent, target: WatchEvent | None) -> None:
        if event.mask & OVERFLOW:
            self._overflow()
            return
        folder = self._folders.get(event.watch)
        if folder is None:
            if event.watch == self._above and event.name == os.path.basename(self._top):
                self._end()
            return  # of a folder that has left the tree
        if event.mask & IGNORED:
            del self._folders[event.watch]
            self.ended = self.ended or event.watch == self._top_watch
        elif event.mask & (DELETE_SELF | MOVE_SELF):
            if event.watch == self._top_watch:
                self._end()
        elif event.name:
            self._take_entry(event, os.path.join(folder, event.name), target)

    def _take_entry(self, event: WatchEvent, path: str, target: WatchEvent | None) -> None:
        is_folder = bool(event.mask & IS_FOLDER)
        if event.name.startswith(SCRATCH):
            self._took_place(target, is_folder)
            return
        if event.mask & (CREATE | MOVED_TO):
            self._appeared(path, is_folder)
        elif event.mask & DELETE:
            self._found.discard(path)
            self._tell("deleted", path, is_folder)
        elif event.mask & MOVED_FROM:
            self._moved(path, target, is_folder)
        elif not is_folder:
            self._tell("modified", path, is_folder)

    def _took_place(self, target: WatchEvent | None, is_folder: bool) -> None:
        """Report what an incomplete file of ours has become as new; the incomplete file itself is never reported."""
        folder = self._folders.get(target.watch) if target is not None else None
        if target is not None and folder is not None:
            self._appeared(os.path.join(folder, target.name), is_folder)

    def _appeared(self, path: str, is_folder: bool) -> None:
        if path in self._found:
            return
        self._tell("created", path, is_folder)
        if is_folder and self._recursive:
            self._watch_new(path)

    def _moved(self, path: str, target: WatchEvent | None, is_folder: bool) -> None:
        folder = self._folders.get(target.watch) if target is not None else None
        if target is None or folder is None:
            self._tell("deleted", path, is_folder)
            self._forget_below(path)
            return
        new = os.path.join(folder, target.name)
        if self._only is not None and self._only not in (os.path.basename(path), target.name):
            return
        self._changes.append({"kind": "moved", "path": path, "target": new, "directory": is_folder})
        if is_folder:
            self._rename_below(path, new)

    def _end(self) -> None:
        if not self.ended:
            self._tell("deleted", self._top, is_folder=True)
            self.ended = True

    def _overflow(self) -> None:
        """Look for new folders and watch them, because the kernel has dropped events."""
        self._changes.append({"kind": "overflow", "path": self._top, "directory": True})
        if self._recursive:
            self._look_through(self._top, tell=False)

    def _tell(self, kind: str, path: str, is_folder: bool) -> None:
        if self._only is not None and os.path.basename(path) != self._only and path != self._top:
            return
        change: Header = {"kind": kind, "path": path, "directory": is_folder}
        if not self._changes or self._changes[-1] != change or kind != "modified":
            self._changes.append(change)

    # -- folders ---------------------------------------------------------------------------------------------------

    def _add(self, folder: str) -> int:
        if len(self._folders) >= MAX_FOLDERS:
            message = f"more than {MAX_FOLDERS} folders below {self._top}; watch a smaller tree"
            raise Refused("too_many_watches", message)
        try:
            number = self.kernel.add(folder)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                message = "the kernel's limit on watches is reached; raise fs.inotify.max_user_watches on the host"
                raise Refused("too_many_watches", message) from None
            raise
        self._folders[number] = folder
        return number

    def _watch_above(self) -> int:
        """Watch the parent: only there the kernel reports the removal of a folder that a process is still in."""
        parent = os.path.dirname(self._top)
        try:
            return -1 if parent == self._top else self.kernel.add_departures(parent)
        except OSError:
            return -1

    def _watch_new(self, folder: str) -> None:
        try:
            self._add(folder)
        except OSError:
            return  # it is gone again, or may not be read
        self._look_through(folder, tell=True)

    def _look_through(self, top: str, *, tell: bool) -> None:
        """Watch every folder below ``top``, which is watched itself; tell of all that is there, if asked."""
        waiting = [top]
        while waiting:
            for name, is_folder in _entries(waiting.pop(), self._sight):
                if tell:
                    self._found.add(name)
                    self._tell("created", name, is_folder)
                if is_folder:
                    try:
                        self._add(name)
                    except OSError:
                        continue
                    waiting.append(name)

    def _rename_below(self, old: str, new: str) -> None:
        for number, folder in self._folders.items():
            if folder == old or folder.startswith(f"{old}/"):
                self._folders[number] = new + folder[len(old) :]

    def _forget_below(self, path: str) -> None:
        for number, folder in [*self._folders.items()]:
            if folder == path or folder.startswith(f"{path}/"):
                del self._folders[number]
                self.kernel.remove(number)


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


def _entries(folder: str, sight: Sight) -> list[tuple[str, bool]]:
    try:
        with sight.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(SCRATCH)]
            return [(os.path.join(folder, entry.name), entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return []
