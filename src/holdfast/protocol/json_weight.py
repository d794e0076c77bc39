"""Estimates how much work it is to parse some JSON: not by its length, but by the number of values in it.

Parsing is one call that holds the interpreter lock, in whatever thread it is made, and its result may take fifty times
the memory of the text. So JSON that comes out of a sandbox is checked here, in short steps, before it is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST_VALUES = 200_000
"""In lists and objects. So many take about 20 ms, and some 15 MB."""
MOST_ESCAPES = 2_000_000
"""Of characters in strings. Each escape is one step of the parser."""
_FEW_BYTES = 64 << 10
"""A text of this size is never much work, whatever is in it."""
_MOST_STEPS = 2_000_000
_SIGNS = (b",", b"[", b"{")
_AT_ONCE = 1 << 20


def is_light(body: bytes) -> bool:
    """Say whether parsing takes less than about 30 ms. It does not check that the text is JSON."""
    if len(body) <= _FEW_BYTES:
        return True
    if count_escapes(body) > MOST_ESCAPES:
        return False
    if signs(body, 0, len(body)) <= MOST_VALUES:  # counts too much: also what stands in strings
        return True
    values = 0
    for steps, (start, end) in enumerate(between_texts(body)):
        values += signs(body, start, end)
        if values > MOST_VALUES or steps > _MOST_STEPS:
            return False
    return True


def count_escapes(body: bytes) -> int:
    return sum(body.count(b"\\", at, at + _AT_ONCE) for at in range(0, len(body), _AT_ONCE))


def between_texts(body: bytes) -> Iterator[tuple[int, int]]:
    """The pieces between strings, as (start, end). Each escaped quote yields an empty piece, to count the work."""
    at = 0
    while True:
        opening = body.find(b'"', at)
        yield at, opening if opening >= 0 else len(body)
        if opening < 0:
            return
        at = opening + 1
        while True:
            closing = body.find(b'"', at)
            if closing < 0:
                return
            at = closing + 1
            if not _is_escaped(body, closing):
                break
            yield at, at


def _is_escaped(body: bytes, quote: int) -> bool:
    """Say whether an odd number of backslashes stands before the quote."""
    first = quote
    while first and body[first - 1] == 0x5C:
        first -= 1
    return (quote - first) % 2 == 1


def signs(body: bytes, start: int, end: int) -> int:
    """Return how many signs stand there that begin a value or follow one: about as many as there are values."""
    total = 0
    for at in range(start, end, _AT_ONCE):
        total += sum(body.count(sign, at, min(at + _AT_ONCE, end)) for sign in _SIGNS)
    return total
