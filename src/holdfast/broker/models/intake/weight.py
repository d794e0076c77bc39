"""Measures how much work a body is. Six megabytes of ``[],[],…`` take seconds, and a lot of memory.

Parsing is one call into C that lets nobody else run, in whatever thread it is made, so what would take long is refused
before. The look itself is made of short steps.
"""

from holdfast.protocol.json_weight import between_texts, count_escapes, signs

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


def is_big(body: bytes, parts: int) -> bool:
    return len(body) > BIG_BYTES or parts > BIG_PARTS


class TooHeavy(Exception):
    """The body is too much work. The message is for the agent."""


def parts_of(body: bytes) -> int:
    """Count the values in this JSON, or a few too many. Raises ``TooHeavy``."""
    if len(body) > MOST_BYTES:
        raise TooHeavy(f"the request's body has more than {MOST_BYTES >> 20} MB of text besides images and the like")
    if count_escapes(body) > MOST_ESCAPES:
        raise TooHeavy(f"the request's body has more than {MOST_ESCAPES} escaped characters; send less")
    parts = signs(body, 0, len(body))
    if parts <= MOST_PARTS:  # with all that stands in texts
        return parts
    parts = 0
    for steps, (start, end) in enumerate(between_texts(body)):
        parts += signs(body, start, end)
        if parts > MOST_PARTS or steps > MOST_STEPS:
            raise TooHeavy(f"the request's body has more than {MOST_PARTS} values, or too many quotes; send less")
    return parts
