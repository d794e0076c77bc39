"""The last lines of a terminal, drawn again and again: what is running now. Above them the talk goes on."""

import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Protocol

Write = Callable[[str], None]

_SHOWN = 2 / 3
"""How much of the window's height it may take."""


def to_terminal(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def window() -> tuple[int, int]:
    """Return columns and rows of the window, as they are now."""
    size = shutil.get_terminal_size()
    return size.columns, size.lines


class Live(Protocol):
    """Where what is running now is shown."""

    def draw(self, lines: Sequence[str]) -> None: ...

    def clear(self) -> None: ...

    def leave(self) -> None: ...


class LiveArea:
    """``draw`` puts lines there, instead of those that were; ``clear`` takes them away, before anything else is
    written. The cursor must be at the beginning of a line."""

    def __init__(self, write: Write = to_terminal, size: Callable[[], tuple[int, int]] = window) -> None:
        self._write = write
        self._size = size
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        columns, rows = self._size()
        kept = list(lines)[-max(int(rows * _SHOWN), 1) :]
        text = "".join(f"\x1b[2m{fitting(line, columns - 1)}\x1b[0m\n" for line in kept)
        self._write(self._gone() + text)
        self._drawn = len(kept)

    def clear(self) -> None:
        if self._drawn:
            self._write(self._gone())
            self._drawn = 0

    def leave(self) -> None:
        """Leave what is drawn where it is: somebody has typed below."""
        self._drawn = 0

    def _gone(self) -> str:
        return f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else ""


def fitting(line: str, columns: int) -> str:
    """Cut a line so that it does not go on in the next line of the terminal."""
    line = line.expandtabs(4)
    used = 0
    for at, character in enumerate(line):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > columns:
            return line[: max(at - 1, 0)] + "…"
    return line
