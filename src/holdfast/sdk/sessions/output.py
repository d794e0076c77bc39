"""Output that is followed while it is written: its pieces, and how a follower goes on after a cut."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp

from holdfast.errors import Unavailable
from holdfast.sdk.connection.sse import WireEvent, read_events

SILENCE_SECONDS = 60.0
"""Keep-alives come every 15 s; after this the connection is dead."""
RESUME_SECONDS = 60.0
"""How long a daemon may be away before a follower gives up."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of ``stdout`` or ``stderr``. ``dropped`` bytes before it are gone for good."""

    stream: str
    offset: int
    data: bytes
    dropped: int = 0

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


def chunk_of(stream: str, told: Mapping[str, Any]) -> Chunk:
    text = told.get("text")
    data = text.encode() if isinstance(text, str) else base64.b64decode(told["base64"])
    return Chunk(stream, told["offset"], data, told.get("dropped", 0))


Opening = AbstractAsyncContextManager[aiohttp.ClientResponse]
Open = Callable[[int], Opening]
"""A reply of events from this offset on."""


async def follow(open_at: Open, offset: int) -> AsyncGenerator[Chunk | WireEvent, None]:
    """Yield chunks from ``offset`` on, and the events that are none; the last is ``exit``.

    A cut is not the end: it goes on from the next byte as soon as a daemon answers again.
    """
    position = offset
    patience = asyncio.get_running_loop().time() + RESUME_SECONDS
    while True:
        try:
            async with open_at(position) as response, contextlib.aclosing(read_events(response)) as events:
                async for event in events:
                    patience = asyncio.get_running_loop().time() + RESUME_SECONDS
                    if event.kind in ("stdout", "stderr"):
                        chunk = chunk_of(event.kind, event.data)
                        position = chunk.end
                        yield chunk
                        continue
                    yield event
                    if event.kind == "exit":
                        return
        except Unavailable:
            if asyncio.get_running_loop().time() > patience:
                raise
        await asyncio.sleep(0.2)
