"""JSON objects, one per line, out of a process's output, each with its place there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.protocol import messages
from holdfast.protocol.messages import STDOUT
from holdfast.sessions.follow import Chunk

MOST_LINE_BYTES: Final = 8 << 20

Json = Mapping[str, object]

CUT: Final[Json] = {"holdfast": "cut"}
"""Told by the runner, where it was asked to: what the agent's models were saying before this was cut off."""


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

    def feed(self, chunk: Chunk) -> list[Line]:
        if chunk.dropped:
            self._rest.clear()
            self._torn = True
        if chunk.stream != STDOUT:
            return self._cuts(chunk)
        found = []
        at = 0
        while (newline := chunk.data.find(b"\n", at)) >= 0:
            line = self._finish(chunk, at, newline)
            at = newline + 1
            if line is not None:
                found.append(line)
        self._keep(chunk, at)
        return found

    def _cuts(self, chunk: Chunk) -> list[Line]:
        at = chunk.data.find(messages.CUT)
        if at < 0 or self._rest:  # lines have an order, and this would come before the one that has begun
            return []
        return [Line(chunk.offset + at, chunk.offset + at + len(messages.CUT), CUT)]

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


def parse(line: bytes) -> Json | None:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
