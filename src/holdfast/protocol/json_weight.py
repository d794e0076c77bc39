"""How much work it is to parse some JSON: not by its length, but by how many values are in it.

To parse is one call that lets nobody else run, in whatever thread it is made, and its result may take fifty times the
memory of the text. What comes out of a sandbox is looked at before it is parsed, in short steps.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST_VALUES = 200_000
"""In lists and objects: that many take about 20 ms, and some 15 MB."""
MOST_ESCAPES = 2_000_000
"""Of characters in texts: each is a step of the parser's."""
_FEW_BYTES = 64 << 10
"""So little is no work, whatever is in it."""
_MOST_STEPS = 2_000_000
_SIGNS = (b",", b"[", b"{")
_AT_ONCE = 1 << 20


def is_light(body: bytes) -> bool:
    """Whether to parse it takes less than some 30 ms. Whether it is JSON, others say."""
    if len(body) <= _FEW_BYTES:
        return True
    if count_escapes(body) > MOST_ESCAPES:
        return False
    if signs(body, 0, len(body)) <= MOST_VALUES:  # with all that stands in texts
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
    """What is outside of strings. An empty piece stands for each quote that ends none."""
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
    """By an odd number of backslashes before it."""
    first = quote
    while first and body[first - 1] == 0x5C:
        first -= 1
    return (quote - first) % 2 == 1


def signs(body: bytes, start: int, end: int) -> int:
    total = 0
    for at in range(start, end, _AT_ONCE):
        total += sum(body.count(sign, at, min(at + _AT_ONCE, end)) for sign in _SIGNS)
    return total
