"""What goes into and comes out of work on a session's files. Plain frozen data, checked: the runner is not trusted.

Paths are text as Python has it: bytes that are no UTF-8 stand in it as lone surrogates (``surrogateescape``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import ProtocolError

MAX_PATH = 16_384
"""Longer than any path that a kernel takes, also with every byte written as one character."""


class EntryKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class ChangeKind(StrEnum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    MOVED = "moved"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link."""

    path: str
    kind: EntryKind
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    inode: int
    target: str | None = None
    ctime_ns: int | None = None
    """When anything of it was last changed, which nobody can set back; None from a runner that does not tell."""

    @property
    def mtime(self) -> float:
        return self.mtime_ns / 1e9

    @classmethod
    def of(cls, told: object) -> "Entry":
        try:
            entry = _mapping(told)
            return cls(
                path=_text(entry["path"]),
                kind=EntryKind(_text(entry["kind"])),
                size=_natural(entry["size"]),
                mode=_natural(entry["mode"]) & 0o7777,
                uid=_natural(entry["uid"]),
                gid=_natural(entry["gid"]),
                mtime_ns=_number(entry["mtime_ns"], 1 << 96),
                inode=_natural(entry["inode"]),
                target=None if entry.get("target") is None else _text(entry["target"]),
                ctime_ns=None if entry.get("ctime_ns") is None else _number(entry["ctime_ns"], 1 << 96),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the runner told of a file in a way that makes no sense: {error}") from None


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened below a watched path. ``target`` is where it was moved to."""

    kind: ChangeKind
    path: str
    directory: bool
    target: str | None = None

    @classmethod
    def of(cls, told: object) -> "Change":
        try:
            change = _mapping(told)
            return cls(
                kind=ChangeKind(_text(change["kind"])),
                path=_text(change["path"]),
                directory=bool(change["directory"]),
                target=None if change.get("target") is None else _text(change["target"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the runner told of a change in a way that makes no sense: {error}") from None


@dataclass(frozen=True, slots=True)
class Search:
    """Which entries to list: those in a folder, or in its whole tree, or of these those that fit."""

    path: str
    recursive: bool = False
    hidden: bool = True
    pattern: str | None = None
    kind: EntryKind | None = None
    limit: int = 1000
    after: str | None = None
    """Where the page before ended: the last path, relative to ``path``."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came of an archive."""

    files: int
    bytes: int


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_PATH:
        raise TypeError("a text was expected")
    value.encode("utf-8", "surrogateescape")  # no other surrogates: they would break whoever writes them out
    return value


def _number(value: object, below: int = 1 << 63) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= below:
        raise TypeError("a number was expected")
    return value


def _natural(value: object) -> int:
    if (number := _number(value)) < 0:
        raise ValueError("a number below zero")
    return number
