"""What of the host's own directories no sandbox may read: all that not everybody on the host may read.

A sandbox with a writable root runs as the owner of what it is shown, or it could change nothing; so the host's modes
alone do not keep it from root's own files. They are looked for, and the session's layer hides them: as a file that
was removed in it would be. A sandbox whose user owns nothing of the host's needs that for nothing.

Everything here blocks.
"""

import contextlib
import functools
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

_FRESH_SECONDS = 30.0
"""Older than this, it is looked for again, by the way."""
_STALE_SECONDS = 3600.0
"""Older than this, nothing is made with it."""
_READ, _PASS = 0o004, 0o001
_SEARCH_SECONDS = 300.0
_NEVER: tuple[float, Sequence["WithheldEntry"]] = (float("-inf"), ())
_PASSAGE = 0o111
_NOBODY = 65534
_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


@dataclass(frozen=True, slots=True)
class WithheldEntry:
    """One that is withheld. ``path`` is relative to the directory that was looked through."""

    path: str
    mode: int
    uid: int
    gid: int

    @property
    def is_passage(self) -> bool:
        """Say whether this is a directory that everybody may pass through, but not list."""
        return stat.S_ISDIR(self.mode) and bool(self.mode & _PASS)

    @property
    def is_door(self) -> bool:
        """Say whether this is a socket or a pipe, behind which a program of the host may wait; no read-only mount shuts
        it."""
        return stat.S_ISSOCK(self.mode) or stat.S_ISFIFO(self.mode)


def search(top: Path) -> Sequence[WithheldEntry]:
    """Find all below ``top`` that is to be withheld; nothing below what is withheld itself, but for passages."""
    found: list[WithheldEntry] = []
    waiting = [(top, "")]
    while waiting:
        directory, above = waiting.pop()
        for name, status in _content(directory):
            mode = status.st_mode
            is_directory = stat.S_ISDIR(mode)
            if is_directory and mode & _PASS:
                waiting.append((directory / name, f"{above}{name}/"))
            if _is_for_everybody(mode, is_directory=is_directory):
                continue
            found.append(WithheldEntry(f"{above}{name}", mode, status.st_uid, status.st_gid))
    return sorted(found, key=lambda entry: entry.path)


def _is_for_everybody(mode: int, *, is_directory: bool) -> bool:
    if is_directory:
        return mode & (_READ | _PASS) == _READ | _PASS
    if stat.S_ISREG(mode):
        return bool(mode & _READ)
    return not (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode))


def _content(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        descriptor = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone, or not ours to list: then it is nobody's in a sandbox of ours either
    try:
        with os.scandir(descriptor) as entries:  # a descriptor spares the kernel the way to each file
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    yield entry.name, entry.stat(follow_symlinks=False)
    except OSError:
        return
    finally:
        os.close(descriptor)


def search_apart(top: Path, *, patiently: bool = False) -> Sequence[WithheldEntry]:
    """``search`` in a process of its own: our own threads would wait for this one. ``patiently``: behind all others."""
    command = [sys.executable, "-I", "-S", __file__, str(top), *(["patiently"] if patiently else [])]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_SEARCH_SECONDS)
        return [WithheldEntry(*fields) for fields in json.loads(done.stdout)]
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return search(top)


class Withheld:
    """What was found in each directory, kept for a while: a large ``/usr`` takes a second.

    ``shared`` is a directory where other daemons of this machine find it, too.
    """

    def __init__(
        self,
        look: Callable[[Path], Sequence[WithheldEntry]] = search_apart,
        shared: Path | None = None,
        look_again: Callable[[Path], Sequence[WithheldEntry]] | None = None,
    ) -> None:
        """``look_again``: by which what is known already is renewed."""
        self._look = look
        self._look_again = look_again or look
        self._shared = shared
        self._found: dict[Path, tuple[float, Sequence[WithheldEntry]]] = {}
        self._forgotten = float("-inf")
        self._searching: dict[Path, threading.Lock] = {}

    def of(self, top: Path) -> Sequence[WithheldEntry]:
        """Return what is withheld. It is at most an hour old, and half a minute where it is asked for often."""
        when, found = self._found.get(top, _NEVER)
        age = time.time() - when
        if not 0 <= age <= _STALE_SECONDS:
            return self._search_again(top, _STALE_SECONDS, self._look)
        if age > _FRESH_SECONDS:
            self._renew(top, _FRESH_SECONDS)
        return found

    def known(self, top: Path) -> Sequence[WithheldEntry]:
        """Return what is withheld as it was when somebody looked. This waits only if nobody has looked yet."""
        when, found = self._found.get(top, _NEVER)
        if when == float("-inf"):
            return self._search_again(top, _STALE_SECONDS, self._look)
        if not 0 <= time.time() - when <= _STALE_SECONDS:
            self._renew(top, _STALE_SECONDS)
        return found

    def _renew(self, top: Path, older_than: float) -> None:
        if not self._lock(top).locked():
            self._search_in_background(top, older_than, self._look_again)

    def forget(self) -> None:
        """Look again before anything is made; what a search that is under way finds is old already."""
        self._forgotten = time.time()
        self._found.clear()

    def begin(self, top: Path) -> None:
        """Look in the background, so that whoever asks first need not wait as long."""
        if top not in self._found:
            self._search_in_background(top, _STALE_SECONDS, self._look)

    def _search_in_background(self, *arguments: object) -> None:
        threading.Thread(target=self._search_again, args=arguments, daemon=True).start()

    def _search_again(
        self, top: Path, older_than: float, look: Callable[[Path], Sequence[WithheldEntry]]
    ) -> Sequence[WithheldEntry]:
        """Search again, unless another thread or another daemon was quicker."""
        with self._lock(top):
            when, found = max(self._found.get(top, _NEVER), self._read(top), key=lambda each: each[0])
            if when <= self._forgotten or not 0 <= time.time() - when <= older_than:
                when = float("-inf")
                while when <= self._forgotten:
                    when = time.time()
                    found = look(top)
                self._write(top, when, found)
            self._found[top] = (when, found)
        return found

    def _lock(self, top: Path) -> threading.Lock:
        return self._searching.setdefault(top, threading.Lock())

    def _file(self, top: Path) -> Path | None:
        return self._shared / f"{top.name}.json" if self._shared and top.parent == Path("/") else None

    def _read(self, top: Path) -> tuple[float, Sequence[WithheldEntry]]:
        file = self._file(top)
        try:
            content = json.loads(file.read_text()) if file else {}
            return float(content["when"]), [WithheldEntry(*fields) for fields in content["found"]]
        except (OSError, ValueError, TypeError, KeyError):
            return _NEVER

    def _write(self, top: Path, when: float, found: Sequence[WithheldEntry]) -> None:
        file = self._file(top)
        if file:
            with contextlib.suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                scratch = file.with_suffix(f".{os.getpid()}")
                scratch.write_text(json.dumps({"when": when, "found": [astuple(entry) for entry in found]}))
                scratch.rename(file)


OF_THIS_HOST = Withheld(
    shared=Path("/run/holdfast/withheld") if os.geteuid() == 0 else None,
    look_again=functools.partial(search_apart, patiently=True),
)
"""One for all drivers of a process: they share the machine."""


def hide(entries: Sequence[WithheldEntry], lower: Path, upper: Path, id_base: int | None) -> None:
    """Hide them in the layer ``upper`` that lies over ``lower``. ``id_base``: what its root has as id; None: our own.

    The session may have written to the layer before, so no link in it is followed. Raises OSError.
    """
    # What is in a passage comes before it: shut, it lets in nobody but root.
    for entry in sorted(entries, key=lambda entry: (entry.is_passage, -entry.path.count("/"))):
        *above, name = entry.path.split("/")
        parent = os.open(upper, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for depth, part in enumerate(above, 1):
                parent = _enter(parent, part, lower.joinpath(*above[:depth]), id_base)
            _hide_one(parent, name, entry, id_base)
        except (NotADirectoryError, FileNotFoundError):
            continue  # the layer has something else there, which hides it; or the host has it no more
        finally:
            os.close(parent)


def _enter(parent: int, name: str, lower: Path, id_base: int | None) -> int:
    """The directory of that name, made as it is below if it is not there; ``parent`` is closed, unless this fails."""
    status = lower.lstat()
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        if id_base is not None:
            os.chown(name, id_base + status.st_uid, id_base + status.st_gid, dir_fd=parent, follow_symlinks=False)
        os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=parent)
    try:
        inner = _open(parent, name)
    except OSError as error:
        raise NotADirectoryError(error.errno, name) from error
    os.close(parent)
    return inner


def _open(parent: int, name: str) -> int:
    """A directory of the layer, also one that the session has shut: an ordinary user's sandbox can open it again."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise
        os.chmod(name, stat.S_IMODE(status.st_mode) | 0o700, dir_fd=parent)
        return os.open(name, flags, dir_fd=parent)


def _hide_one(parent: int, name: str, entry: WithheldEntry, id_base: int | None) -> None:
    if entry.is_passage:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        _shut_passage(parent, name, id_base)
        return
    try:
        _remove_in_layer(parent, name, id_base)
    except FileExistsError:
        if stat.S_ISDIR(entry.mode):
            _make_opaque(parent, name)


def _shut_passage(parent: int, name: str, id_base: int | None) -> None:
    try:
        there = _open(parent, name)
    except OSError:
        return  # shut already, or something else of the session's own
    try:
        if id_base is not None:
            os.fchown(there, id_base + _NOBODY, id_base + _NOBODY)
        os.fchmod(there, _PASSAGE)
    finally:
        os.close(there)


def _remove_in_layer(parent: int, name: str, id_base: int | None) -> None:
    """Mark a name as removed, as an overlay does; where that is refused, an empty file does the same."""
    try:
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
    except PermissionError:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0, dir_fd=parent))
    if id_base is not None:  # the session's root may put something else there
        os.chown(name, id_base, id_base, dir_fd=parent, follow_symlinks=False)


def _make_opaque(parent: int, name: str) -> None:
    """Cut off a directory that the session has made or changed: it keeps what is its own, and shows nothing of
    below."""
    try:
        there = _open(parent, name)
    except OSError:
        return
    try:
        for attribute in _OPAQUE:
            with contextlib.suppress(OSError):
                os.setxattr(there, attribute, b"y")
    finally:
        os.close(there)


if __name__ == "__main__":
    if sys.argv[2:]:
        os.nice(10)
    sys.stdout.write(json.dumps([astuple(entry) for entry in search(Path(sys.argv[1]))]))
