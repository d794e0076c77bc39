"""How much work a body is. Its length does not say: six megabytes of ``[],[],…`` take seconds, and a lot of memory.

Parsing is one call into C that lets nobody else run, in whatever thread it is made, so what would take long is refused
before. The look itself is made of short steps.
"""

from collections.abc import Iterator

MOST_PARTS = 60_000
"""Values in lists and objects, of one body. That many take up to 50 ms."""
MOST_ESCAPES = 2_000_000
"""Of characters in texts: each is a step of the parser's, and of the writer's."""
MOST_STEPS = 2_000_000
"""Quotes that are looked at until that is known."""
MOST_BYTES = 8 << 20
"""Of a body without its long stretches of plain text: see ``lifted``. That is more text than any model takes."""
BIG_BYTES = 256 << 10
BIG_PARTS = 2000
"""More is worked on in a thread."""
PART_BYTES = 100
"""What one value takes in memory, roughly, besides its text."""
_SIGNS = (b",", b"[", b"{")
_AT_ONCE = 1 << 20


def is_big(body: bytes, parts: int) -> bool:
    return len(body) > BIG_BYTES or parts > BIG_PARTS


class TooHeavy(Exception):
    """The message says so to who asks."""


def parts_of(body: bytes) -> int:
    """At least as many values as there are in this JSON. Raises ``TooHeavy``."""
    if len(body) > MOST_BYTES:
        raise TooHeavy(f"the request's body has more than {MOST_BYTES >> 20} MB of text besides images and the like")
    if sum(body.count(b"\\", at, at + _AT_ONCE) for at in range(0, len(body), _AT_ONCE)) > MOST_ESCAPES:
        raise TooHeavy(f"the request's body has more than {MOST_ESCAPES} escaped characters; send less")
    parts = _signs(body, 0, len(body))
    if parts <= MOST_PARTS:  # with all that stands in texts
        return parts
    parts = 0
    for steps, (start, end) in enumerate(_between_texts(body)):
        parts += _signs(body, start, end)
        if parts > MOST_PARTS or steps > MOST_STEPS:
            raise TooHeavy(f"the request's body has more than {MOST_PARTS} values, or too many quotes; send less")
    return parts


def _between_texts(body: bytes) -> Iterator[tuple[int, int]]:
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


def _signs(body: bytes, start: int, end: int) -> int:
    total = 0
    for at in range(start, end, _AT_ONCE):
        total += sum(body.count(sign, at, min(at + _AT_ONCE, end)) for sign in _SIGNS)
    return total
