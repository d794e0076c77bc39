"""Following what runs in a sandbox: output as it is written, from any position, over cuts of the connection."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from holdfast.concurrency import next_or_silence
from holdfast.errors import ProtocolError, SandboxLost
from holdfast.link.link import Link
from holdfast.link.streams import check, open_stream, read_frame
from holdfast.protocol import frames
from holdfast.protocol.messages import STDERR, STDOUT

PING_EVERY_SECONDS = 10.0
REATTACH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one stream. ``dropped`` bytes before it are gone: nobody followed, and there was no more room."""

    stream: int
    offset: int
    data: bytes
    dropped: int = 0

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def stream_name(self) -> str:
        return "stdout" if self.stream == STDOUT else "stderr"


@dataclass(frozen=True, slots=True)
class End:
    """The program has ended; what the runner says of it."""

    told: frames.Header


@dataclass(frozen=True, slots=True)
class Attached:
    """The runner knows what is asked for; output follows."""


OnAttach = Callable[[asyncio.StreamWriter | None], None]
"""Told of the way to the program while there is one; for those who also write."""


async def follow(
    link: Link, op: str, fields: frames.Header, offset: int, on_attach: OnAttach = lambda _writer: None
) -> AsyncGenerator[Attached | Chunk | End, None]:
    """Yield all output from ``offset`` on, then the end. A cut is survived as long as the runner comes back."""
    position, before = offset, -1
    while True:
        try:
            async with open_stream(link, op, {**fields, "offset": position}) as (reader, writer):
                on_attach(writer)
                if before < 0:
                    yield Attached()
                async with contextlib.aclosing(_frames(link, reader)) as arriving:
                    async for header, body in arriving:
                        if "end" in header:
                            yield _end(header)
                            return
                        chunk = _chunk(header, body)
                        position = chunk.end
                        yield chunk
        except SandboxLost:
            if position == before and not link.lost:  # twice at the same place
                raise
            before = position
            await link.wait_connected(REATTACH_SECONDS)  # raises what the link was lost to, if it is
        finally:
            on_attach(None)


async def _frames(link: Link, reader: asyncio.StreamReader) -> AsyncGenerator[frames.Frame, None]:
    """Frames as they come; while none does, the runner is asked whether it lives."""
    async with contextlib.aclosing(next_or_silence(_read_all(reader), PING_EVERY_SECONDS)) as arriving:
        async for frame in arriving:
            if frame is None:
                await link.call("ping", {}, timeout=PING_EVERY_SECONDS)
            else:
                yield frame


async def _read_all(reader: asyncio.StreamReader) -> AsyncGenerator[frames.Frame, None]:
    while True:
        yield await read_frame(reader)


def _chunk(header: frames.Header, body: bytes) -> Chunk:
    """Return the runner's words, checked: it lives in the sandbox and may be anything by now."""
    offset, stream, dropped = header.get("offset"), header.get("stream"), header.get("dropped", 0)
    if not isinstance(offset, int) or stream not in (STDOUT, STDERR) or not isinstance(dropped, int):
        raise ProtocolError("the runner sent a piece of output that makes no sense")
    return Chunk(stream, offset, body, dropped)


def _end(header: frames.Header) -> End:
    told = header["end"]
    if not isinstance(told, dict):
        raise ProtocolError("the runner told of an end that makes no sense")
    return End(check(told))
