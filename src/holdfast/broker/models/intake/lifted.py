"""Long stretches of plain text, lifted out of a JSON body before it is parsed, and set in again when it is sent on.

An image in a question is one text of many megabytes. To parse it, and to write it again, is one call each that lets
nobody else run, and each copies it. So what is plain in a text (no quote, no backslash) and long is left where it is in
the body as it came, and a mark stands for it in what is parsed. A mark is a few letters and digits behind the first
kilobyte of its stretch: whoever splits, joins or moves texts moves it along, in whatever dialect, also in JSON that
stands in a text of JSON. What is sent on has every byte of it, in pieces.
"""

import codecs
import re
import secrets
from collections.abc import Iterator, Sequence

LONG_BYTES = 64 << 10
"""Shorter stretches stay where they are."""
_LEFT_BYTES = 1 << 10
"""The beginning of a stretch, which is left in its place: it says what the rest is, and may be the digits of
an escape."""
_STEP = 256 << 10
"""So much is looked at in one call."""
_CONTROLS = bytes(range(0x20))
_ESCAPES = re.compile(rb'(?:[^"\\]{0,2047}+\\.){1,100}+', re.DOTALL)
"""Stretches that are too short, each with what ends it, up to a hundred at once."""
_NUMBER_DIGITS = 6
_QUOTE, _BACKSLASH = b'"', b"\\"

Piece = bytes | memoryview


class NotPlain(Exception):
    """A text in the body has bytes that no JSON may have."""


class Lifted:
    """The stretches that were taken out of one body. Nobody outside can know their marks, and so forge one."""

    def __init__(self) -> None:
        self._word = secrets.token_hex(16).encode()
        self._stretches: list[memoryview] = []

    def take(self, stretch: memoryview) -> bytes:
        """Keep a stretch, and return the mark that stands for it from now on."""
        self._stretches.append(stretch)
        return b"%b%0*d" % (self._word, _NUMBER_DIGITS, len(self._stretches) - 1)

    @property
    def is_empty(self) -> bool:
        return not self._stretches

    def pieces(self, text: bytes) -> Sequence[Piece]:
        """Split a text with marks into the pieces that are sent on."""
        if not self._stretches:
            return [text]
        first, *others = text.split(self._word)
        found: list[Piece] = [first]
        for other in others:
            found += [self._stretches[int(other[:_NUMBER_DIGITS])], other[_NUMBER_DIGITS:]]
        return found

    def size(self, text: bytes) -> int:
        """Return the number of bytes that are sent on for this text."""
        return sum(len(piece) for piece in self.pieces(text)) if self._stretches else len(text)

    def shortened(self, text: bytes) -> bytes:
        """Return the text with a note of its length in place of each stretch, for readers who need no more."""
        return b"".join(b"[+%d bytes]" % len(one) if isinstance(one, memoryview) else one for one in self.pieces(text))


def lift(body: bytes | bytearray) -> tuple[bytes, Lifted]:
    """Return what is left to parse, and what was lifted out. It works in short steps, and raises ``NotPlain``.

    What is left is JSON if the body is, and means the same.
    """
    lifted = Lifted()
    view = memoryview(body)
    left: list[bytes] = []
    at = 0
    for start, end in _long_stretches(body):
        start = _whole_letter(body, start + _LEFT_BYTES)
        _check(view[start:end])
        left += [bytes(view[at:start]), lifted.take(view[start:end])]
        at = end
    left.append(bytes(view[at:]))
    return b"".join(left), lifted


def _long_stretches(body: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield the long stretches within texts. A quote or an escaped character ends each."""
    at, closing = body.find(_QUOTE) + 1, -1
    while at > 0:
        if closing < at:  # it is another text, or the quote was an escaped one
            closing = body.find(_QUOTE, at)
            if closing < 0:  # no JSON: the parser says so
                return
        escape = body.find(_BACKSLASH, at, closing)
        end = closing if escape < 0 else escape
        if end - at >= LONG_BYTES:
            yield at, end
        if escape < 0:
            at = body.find(_QUOTE, closing + 1) + 1
        else:
            found = _ESCAPES.match(body, at)
            at = found.end() if found is not None else escape + 2


def _whole_letter(body: bytes | bytearray, at: int) -> int:
    while body[at] & 0xC0 == 0x80:
        at += 1
    return at


def _check(stretch: memoryview) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(stretch), _STEP):
        step = bytes(stretch[at : at + _STEP])
        if len(step.translate(None, _CONTROLS)) != len(step):
            raise NotPlain("there is a control character in a text")
        try:
            decoder.decode(step, final=at + _STEP >= len(stretch))
        except UnicodeDecodeError:
            raise NotPlain("a text is not UTF-8") from None
