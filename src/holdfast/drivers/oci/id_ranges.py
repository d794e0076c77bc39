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
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT

MACHINE = Path("/run/holdfast/ids")
LAST = (1 << 31) - 1
"""Some programs take larger ids for negative numbers."""
LEAST = 16
"""Sessions that a layout must have room for."""
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Layout:
    """Which ids of the host the sessions have: ``count`` ranges from ``first`` on, and as many ids from ``owners`` on,
    one for each."""

    first: int
    owners: int
    count: int

    @classmethod
    def within(cls, first: int, last: int) -> "Layout":
        """Return the layout that uses all ids between these two. Raises ``ValueError`` if they are too few."""
        count = (last - first + 1) // (ID_COUNT + 1)
        if count < LEAST:
            raise ValueError(f"must hold at least {LEAST * (ID_COUNT + 1)} ids, for {LEAST} sessions")
        return cls(first, first + count * ID_COUNT, count)

    def base(self, number: int) -> int:
        """Return the host's id of the root of a sandbox with this range."""
        return self.first + number * ID_COUNT

    def owner(self, number: int) -> int:
        """Return the host's id that makes such a sandbox's user namespace. It is nobody inside of any."""
        return self.owners + number

    def spans(self) -> list[range]:
        """Return all ids that the layout uses."""
        return [range(self.first, self.base(self.count)), range(self.owners, self.owner(self.count))]


USUAL = Layout(ID_BASE + ID_COUNT, 900_000_000, (LAST + 1 - ID_BASE) // ID_COUNT - 1)
"""Where nobody says otherwise. Before it are the ids that files on disk belong to."""


class IdRanges:
    """All ranges of this machine. ``place`` is where they are claimed."""

    def __init__(self, place: Path, layout: Layout = USUAL) -> None:
        self._place = place
        self.layout = layout

    @classmethod
    def of_machine(cls, instead: Path, layout: Layout = USUAL) -> "IdRanges":
        """Return the place where all daemons with this layout look; ``instead`` where that cannot be written to, as in
        some containers."""
        name = "" if layout == USUAL else f"-{layout.first}-{layout.count}"
        shared = MACHINE.with_name(f"{MACHINE.name}{name}")
        with contextlib.suppress(OSError):
            shared.mkdir(0o755, parents=True, exist_ok=True)
            if os.access(shared, os.W_OK):
                return cls(shared, layout)
        instead = instead.with_name(f"{instead.name}{name}")
        instead.mkdir(exist_ok=True)
        return cls(instead, layout)

    def claim(self, home: Path) -> int:
        """Claim a range for the session in ``home``, which exists, and return its number: the same each time if it can
        be."""
        home = home.absolute()
        note = home / "ids"
        before = self._noted(note)
        for number in chain([] if before is None else [before], _any(self.layout.count)):
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
        """Release the session's range. A range that another session has stays with that session."""
        number = self._noted(home / "ids")
        if number is not None:
            link = self._place / str(number)
            with contextlib.suppress(FileNotFoundError):
                if link.readlink() == home.absolute():
                    link.unlink()

    def _noted(self, note: Path) -> int | None:
        try:
            number = int(note.read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return number if 0 <= number < self.layout.count else None

    def clean(self) -> None:
        """Give back those of sessions that are gone."""
        for entry in os.scandir(self._place):
            if entry.is_symlink() and not Path(entry.path).exists():
                Path(entry.path).unlink(missing_ok=True)


def _any(count: int) -> Iterator[int]:
    """Choose any free range, not the first: what a session has left to the kernel is gone before its range is another
    one's."""
    for _ in range(_TRIES):
        yield random.randrange(count)  # noqa: S311 - which one is no secret
    yield from range(count)


def _write(note: Path, text: str) -> None:
    scratch = note.with_suffix(".new")
    scratch.write_text(text)
    scratch.rename(note)
