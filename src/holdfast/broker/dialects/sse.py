"""Splits a stream of bytes into server-sent events, without changing them, and writes such events."""

import re

from holdfast.broker.dialects.json import Json, written

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
MOST_BYTES = 1 << 20
"""How much of an event is held back until it is complete."""


class EventSplitter:
    """Holds back what is no whole event yet: nobody could use it, and one that is never completed must not be sent.

    Very long ones are let pass in parts all the same, since memory is not for sandboxes to fill.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self.torn = False
        """Whether the first part of an event has been let pass, and its end has not."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that are complete now, each with the empty line at its end."""
        unseen = max(len(self._rest) - 3, 0)  # its last bytes may be the first half of an end
        self._rest += data
        events = []
        start = 0
        for end in _END.finditer(self._rest, unseen):
            events.append(bytes(self._rest[start : end.end()]))
            start = end.end()
        if events:
            self.torn = False
            self._rest = self._rest[start:]
        if len(self._rest) > self._most_bytes:
            events.append(bytes(self._rest[:-3]))
            self._rest = self._rest[-3:]
            self.torn = True
        return events

    def end(self) -> bytes:
        """End the stream, and return what is left, if it could be an event."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest if rest.strip() else b""


def data_of(event: bytes) -> bytes:
    """Return the content of an event's ``data:`` lines; empty for comments."""
    if event.startswith(b"data:") and event.find(b"\n", 0, -2) < 0:  # most are one line
        return event[5:].strip()
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines).strip()


def event(data: Json, name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, written(data))
