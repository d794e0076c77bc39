"""Output on the wire: text where it is text, base64 where it is not; with offsets, so that a reader can go on."""

import json

from pydantic import BaseModel, Field

from holdfast.api.wire.sse import ServerEvent
from holdfast.api.wire.text import to_base64
from holdfast.sessions.use.follow import Chunk


class ChunkOut(BaseModel):
    """A piece of one stream: ``text``, or ``base64`` where the bytes are not whole UTF-8 characters."""

    stream: str
    offset: int = Field(description="Position of its first byte in all output together")
    text: str | None = None
    base64: str | None = None
    dropped: int = Field(default=0, description="How many bytes before it are gone")

    @classmethod
    def of(cls, chunk: Chunk) -> "ChunkOut":
        text, encoded = _as_text(chunk.data)
        return cls.model_construct(
            stream=chunk.stream_name, offset=chunk.offset, text=text, base64=encoded, dropped=chunk.dropped
        )


def chunk_event(chunk: Chunk) -> ServerEvent:
    """``id`` is the offset that follows it: what to ask for after a cut."""
    dropped = b',"dropped":%d' % chunk.dropped if chunk.dropped else b""
    return ServerEvent(
        chunk.stream_name, b'{"offset":%d%b,%b}' % (chunk.offset, dropped, _content(chunk.data)), str(chunk.end)
    )


def _content(data: bytes) -> bytes:
    """Put together by hand where there is nothing to escape: output comes by the hundred megabytes."""
    try:
        return b'"text":' + json.dumps(data.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return b'"base64":"%b"' % to_base64(data)


def _as_text(data: bytes) -> tuple[str | None, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, to_base64(data).decode()
