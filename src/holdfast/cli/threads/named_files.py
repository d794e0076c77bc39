"""Local files that a message names with an @: they go along with it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_NAMED = re.compile(r'(?:(?<=\s)|^)@(?:"([^"]+)"|(\S+))')
_LIKE_A_PATH = re.compile(r".*/.*|.*[^.]\.[A-Za-z][A-Za-z0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Named:
    text: str
    """Without the @ of those that are files here."""
    files: Sequence[Path]
    missing: Sequence[str]
    """What looks like a file's name and is none here: sent as it was typed."""


def named_files(line: str) -> Named:
    """Find the files; what is no file is left as it is: it may be somebody's name."""
    files: list[Path] = []
    missing: list[str] = []

    def name(found: re.Match[str]) -> str:
        path = Path(found[1] or found[2]).expanduser()
        if path.is_file():
            files.append(path)
            return path.name
        if _LIKE_A_PATH.fullmatch(found[1] or found[2]):
            missing.append(found[0])
        return found[0]

    return Named(_NAMED.sub(name, line), files, missing)
