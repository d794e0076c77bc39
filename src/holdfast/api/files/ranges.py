"""Which part of a file a request is for (RFC 9110, single byte ranges), and whether the caller has it already. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.IGNORECASE)
_DIGITS = 19


@dataclass(frozen=True, slots=True)
class FilePart:
    """``status`` is 200, 206, 304 or 416; for the first two, ``count`` bytes from ``start`` are to be sent."""

    status: int
    start: int = 0
    count: int = 0


def choose(headers: Mapping[str, str], *, size: int, etag: str) -> FilePart:
    """A range that cannot be understood, or several, count as none: the whole file is always a right answer."""
    if _names(headers.get("if-none-match", ""), etag):
        return FilePart(304)
    match = _RANGE.fullmatch(headers.get("range", "").strip())
    same = headers.get("if-range", etag).strip() == etag
    if match is None or not same or not any(match.groups()) or max(map(len, match.groups())) > _DIGITS:
        return FilePart(200, 0, size)
    first, last = match.groups()
    if not first:  # the last so many bytes
        count = min(int(last), size)
        return FilePart(206, size - count, count) if count else FilePart(416)
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return FilePart(200, 0, size)
    return FilePart(206, start, end - start + 1) if start < size else FilePart(416)


def _names(header: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return etag in tags or tags == ["*"]
