"""A range of host ids for each session, so that no two share what the kernel counts per user.

A claim is a link, named by the number of the range, to the session's directory. It is made where all daemons of this
machine look, and lasts until the session is destroyed, or the machine is started anew. Then nothing runs any more, and
a session that is started claims its range again, or another one: on disk all sessions' files belong to the same
ids (``ids``), and are shown to each as its own.

Everything here blocks, for less than a millisecond, and raises OSError.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT

MACHINE = Path("/run/holdfast/ids")
_FIRST_OWNER = 900_000_000
_COUNT = ((1 << 31) - ID_BASE) // ID_COUNT - 1
"""Below 2^31: some programs take larger ids for negative numbers."""
_TRIES = 100


class IdRanges:
    """All ranges of this machine. ``place`` is where they are claimed."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @classmethod
    def of_machine(cls, instead: Path) -> "IdRanges":
        """Where all daemons look; ``instead`` where that cannot be written to, as in some containers."""
        try:
            MACHINE.mkdir(0o755, parents=True, exist_ok=True)
            if os.access(MACHINE, os.W_OK):
                return cls(MACHINE)
        except OSError:
            pass
        instead.mkdir(exist_ok=True)
        return cls(instead)

    def claim(self, home: Path) -> int:
        """For the session in ``home``, which exists: the number of its range, the same each time if it can be."""
        home = home.absolute()
        note = home / "ids"
        before = _noted(note)
        for number in chain([] if before is None else [before], _any()):
            if self._try(number, home):
                if number != before:
                    _write(note, str(number))
                return number
        raise OSError("all ranges of ids are taken; destroy sessions")

    def _try(self, number: int, home: Path) -> bool:
        link = self._place / str(number)
        try:
            link.symlink_to(home)
        except FileExistsError:
            with contextlib.suppress(OSError):
                return link.readlink() == home
            return False
        return True

    def release(self, home: Path) -> None:
        """What another has stays his."""
        number = _noted(home / "ids")
        if number is not None:
            link = self._place / str(number)
            with contextlib.suppress(FileNotFoundError):
                if link.readlink() == home.absolute():
                    link.unlink()

    def clean(self) -> None:
        """Give back those of sessions that are gone."""
        for entry in os.scandir(self._place):
            if entry.is_symlink() and not Path(entry.path).exists():
                Path(entry.path).unlink(missing_ok=True)


def base(number: int) -> int:
    """The host's id of the root of a sandbox with this range."""
    return ID_BASE + (1 + number) * ID_COUNT


def owner(number: int) -> int:
    """The host's id that makes such a sandbox's user namespace. It is nobody inside of any."""
    return _FIRST_OWNER + number


def _any() -> Iterator[int]:
    """Not the first that is free: what a session has left to the kernel is gone before its range is another one's."""
    for _ in range(_TRIES):
        yield random.randrange(_COUNT)  # noqa: S311 - which one is no secret
    yield from range(_COUNT)


def _noted(note: Path) -> int | None:
    try:
        number = int(note.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return number if 0 <= number < _COUNT else None


def _write(note: Path, text: str) -> None:
    scratch = note.with_suffix(".new")
    scratch.write_text(text)
    scratch.rename(note)
