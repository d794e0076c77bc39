"""Reads server-sent events of an agent's server."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from holdfast.agents.base import Place
from holdfast.agents.http.client import Server, connect
from holdfast.errors import AgentFailed

_MOST = 16 << 20
_OK = 200


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; ``id`` is empty if it has none."""

    id: str
    data: str


class Parser:
    """Turns bytes into events. An event that is longer than the limit is skipped."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._rest = bytearray()
        self._id = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        first, *others = data.split(b"\n")
        self._rest += first
        if not others:
            del self._rest[self._most :]
            return []
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1][: self._most])
        found = []
        for line in lines:
            event = self._line(line.rstrip(b"\r"))
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            event = (
                ServerSentEvent(self._id, "\n".join(self._data)) if self._data and self._size <= self._most else None
            )
            self._data, self._size = [], 0
            return event
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        if name == b"id":
            self._id = text
        elif name == b"data":
            self._size += len(text)
            if self._size <= self._most:
                self._data.append(text)
        return None


async def events(
    place: Place, server: Server, path: str, after: str = ""
) -> AsyncGenerator[ServerSentEvent | None, None]:
    """Yield None as soon as the stream is open, then the events after the one with that id.

    It ends with the stream, and raises ``AgentDown`` if the connection breaks.
    """
    headers = {"accept": "text/event-stream"} | ({"last_event_id": after} if after else {})
    async with connect(place, server, "GET", path, None, **headers) as connection:
        head = await connection.head()
        if head.status_code != _OK:
            raise AgentFailed(f"the agent answered {head.status_code} to GET {path}")
        yield None
        parser = Parser()
        async with contextlib.aclosing(connection.pieces()) as pieces:
            async for piece in pieces:
                for event in parser.feed(piece):
                    yield event
