"""Reads JSON objects, one per line, from a process's output, and keeps their offsets in it."""

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

JsonObject = Mapping[str, object]

CUT: Final[JsonObject] = {"holdfast": "cut"}
"""A notice of the runner, for processes that asked for it: the answer of the agent's model before this point was cut
off, and the model was asked again."""
BROKE: Final[JsonObject] = {"holdfast": "broke"}
"""Another notice: a model's answer broke off. The agent does not know it yet, and may still print some of that
answer."""
WENT_ON: Final[JsonObject] = {"holdfast": "went on"}
"""Another notice: after that, the agent asked the model something else."""

_NOTICES: Final = {messages.CUT: CUT, messages.BROKE: BROKE, messages.WENT_ON: WENT_ON}
_NOTICE: Final = re.compile(b"|".join(re.escape(notice) for notice in _NOTICES))


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One JSON object. ``start`` and ``end`` are offsets in the process's output; the next line begins at ``end``."""

    start: int
    end: int
    message: JsonObject


class Lines:
    """Splits chunks of output into lines. It skips lines that are no JSON object or too long, and stderr but for
    notices."""

    def __init__(self, most: int = MOST_LINE_BYTES) -> None:
        self._most = most
        self._rest = bytearray()
        self._start = 0
        self._torn = False  # the beginning of the line that is coming is missing
        self._notices: list[JsonObject] = []  # that came inside an unfinished line: they follow that line

    def feed(self, chunk: Chunk) -> list[OutputLine]:
        if chunk.dropped:
            self._rest.clear()
            self._torn = True
        if chunk.stream != STDOUT:
            return self._take_notices(chunk)
        found = []
        at = 0
        while (newline := chunk.data.find(b"\n", at)) >= 0:
            line = self._finish(chunk, at, newline)
            at = newline + 1
            if line is not None:
                found.append(line)
            end = chunk.offset + at
            found += [OutputLine(end, end, notice) for notice in self._notices]
            self._notices.clear()
        self._keep(chunk, at)
        return found

    def _take_notices(self, chunk: Chunk) -> list[OutputLine]:
        found = list(notices_in(chunk.data))
        if self._rest:
            self._notices += [notice for notice, _start, _end in found]
            return []
        return [OutputLine(chunk.offset + start, chunk.offset + end, notice) for notice, start, end in found]

    def _finish(self, chunk: Chunk, at: int, newline: int) -> OutputLine | None:
        start = self._start if self._rest else chunk.offset + at
        data = bytes(self._rest) + chunk.data[at:newline]
        torn, self._torn = self._torn, False
        self._rest.clear()
        told = None if torn or len(data) > self._most else parse(data)
        return None if told is None else OutputLine(start, chunk.offset + newline + 1, told)

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


async def lines_of(lines: Lines, chunk: Chunk) -> AsyncGenerator[OutputLine]:
    """Do ``feed`` in short steps, because a chunk may be a million empty lines."""
    if chunk.stream != STDOUT:  # a notice must not be cut into two
        for line in lines.feed(chunk):
            yield line
        return
    for at in range(0, max(len(chunk.data), 1), _AT_ONCE):
        if at:
            await asyncio.sleep(0)
        data = chunk.data[at : at + _AT_ONCE]
        for line in lines.feed(replace(chunk, offset=chunk.offset + at, data=data, dropped=0 if at else chunk.dropped)):
            yield line


def notices_in(stderr: bytes) -> Iterator[tuple[JsonObject, int, int]]:
    """Yield the runner's notices in a piece of stderr, each with its start and end."""
    for found in _NOTICE.finditer(stderr):
        yield _NOTICES[found.group()], found.start(), found.end()


def parse(line: bytes) -> JsonObject | None:
    """Parse a line. None if it is no JSON object, or if parsing would block the daemon for too long."""
    if not is_light(line):
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
