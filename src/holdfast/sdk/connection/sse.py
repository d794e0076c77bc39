"""Reading server-sent events from a reply."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp

from holdfast.errors import Unavailable
from holdfast.sdk.connection.transport import error_of_wire


@dataclass(frozen=True, slots=True)
class WireEvent:
    kind: str
    data: Any
    id: str | None


async def read_events(response: aiohttp.ClientResponse) -> AsyncGenerator[WireEvent, None]:
    """Yield each event of the reply, its data parsed. Raises an ``error`` event as the error that it tells of."""
    buffer = bytearray()
    async for chunk in response.content.iter_any():
        searched = max(len(buffer) - 1, 0)
        buffer += chunk
        start = 0
        while (end := buffer.find(b"\n\n", max(start, searched))) >= 0:
            event = _parse(bytes(buffer[start:end]))
            start = searched = end + 2
            if event is not None:
                _raise_error(event)
                yield event
        del buffer[:start]


def _parse(block: bytes) -> WireEvent | None:
    """Parse one event; None for a comment."""
    kind, data, identity = "message", b"", None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"data":
            data = value
        elif name == b"event":
            kind = value.decode()
        elif name == b"id":
            identity = value.decode()
    if not data:
        return None
    try:
        return WireEvent(kind, json.loads(data), identity)
    except ValueError as error:
        raise Unavailable(f"the daemon sent an event that is not JSON: {error}") from None


def _raise_error(event: WireEvent) -> None:
    if event.kind == "error" and isinstance(event.data, dict) and isinstance(event.data.get("error"), dict):
        raise error_of_wire(event.data["error"], None)
