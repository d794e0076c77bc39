"""JSON objects, one per line, out of a process's output, each with its place there."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.protocol import messages
from holdfast.protocol.json_weight import is_light
from holdfast.protocol.messages import STDOUT
from holdfast.sessions.use.follow import Chunk

MOST_LINE_BYTES: Final = 8 << 20
_AT_ONCE: Final = 32 << 10

Json = Mapping[str, object]

CUT: Final[Json] = {"holdfast": "cut"}
"""Told by the runner, where it was asked to: what the agent's models were saying before this was cut off, and they were
asked again."""
BROKE: Final[Json] = {"holdfast": "broke"}
"""An answer broke off. The agent does not know yet, and may have some of it still to say."""
WENT_ON: Final[Json] = {"holdfast": "went on"}
"""It asked something else then."""

_WORDS: Final = {messages.CUT: CUT, messages.BROKE: BROKE, messages.WENT_ON: WENT_ON}
_WORD: Final = re.compile(b"|".join(re.escape(word) for word in _WORDS))


@dataclass(frozen=True, slots=True)
class Line:
    """``start`` and ``end`` are offsets in the process's output: who reads on from ``end`` gets the next line."""

    start: int
    end: int
    told: Json


class Lines:
    """Feed it chunks. What is no JSON object, what went to stderr, and what is too long is skipped."""

    def __init__(self, most: int = MOST_LINE_BYTES) -> None:
        self._most = most
        self._rest = bytearray()
        self._start = 0
        self._torn = False  # the beginning of the line that is coming is missing
        self._words: list[Json] = []  # in the midst of the line that has begun: lines have an order

    def feed(self, chunk: Chunk) -> list[Line]:
        if chunk.dropped:
            self._rest.clear()
            self._torn = True
        if chunk.stream != STDOUT:
            return self._words_in(chunk)
        found = []
        at = 0
        while (newline := chunk.data.find(b"\n", at)) >= 0:
            line = self._finish(chunk, at, newline)
            at = newline + 1
            if line is not None:
                found.append(line)
            end = chunk.offset + at
            found += [Line(end, end, word) for word in self._words]
            self._words.clear()
        self._keep(chunk, at)
        return found

    def _words_in(self, chunk: Chunk) -> list[Line]:
        found = list(words_in(chunk.data))
        if self._rest:
            self._words += [word for word, _start, _end in found]
            return []
        return [Line(chunk.offset + start, chunk.offset + end, word) for word, start, end in found]

    def _finish(self, chunk: Chunk, at: int, newline: int) -> Line | None:
        start = self._start if self._rest else chunk.offset + at
        data = bytes(self._rest) + chunk.data[at:newline]
        torn, self._torn = self._torn, False
        self._rest.clear()
        told = None if torn or len(data) > self._most else parse(data)
        return None if told is None else Line(start, chunk.offset + newline + 1, told)

    def _keep(self, chunk: Chunk, at: int) -> None:
        if at >= len(chunk.data):
            return
        if not self._rest:
            self._start = chunk.offset + at
        if not self._torn:
            self._rest += chunk.data[at:]
        if len(self._rest) > self._most:  # not worth our memory
            self._rest.clear()
            self._torn = True


async def lines_of(lines: Lines, chunk: Chunk) -> AsyncGenerator[Line]:
    """As ``feed``, in short steps: a chunk may be a million empty lines."""
    if chunk.stream != STDOUT:  # its words are not to be cut apart
        for line in lines.feed(chunk):
            yield line
        return
    for at in range(0, max(len(chunk.data), 1), _AT_ONCE):
        if at:
            await asyncio.sleep(0)
        data = chunk.data[at : at + _AT_ONCE]
        for line in lines.feed(replace(chunk, offset=chunk.offset + at, data=data, dropped=0 if at else chunk.dropped)):
            yield line


def words_in(stderr: bytes) -> Iterator[tuple[Json, int, int]]:
    """What the runner has told there, and from where to where."""
    for found in _WORD.finditer(stderr):
        yield _WORDS[found.group()], found.start(), found.end()


def parse(line: bytes) -> Json | None:
    """None for what is no JSON object, and for what would hold up everybody else while it is parsed."""
    if not is_light(line):
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
