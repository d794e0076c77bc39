"""Replies that are large: written and sent in pieces, so that others have their turn in between.

To decode and to escape some megabytes of what a program has printed takes as long as a hundred requests do, and lets
nobody else run meanwhile.
"""

import asyncio
import codecs
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

JSON = "application/json"
PIECE = 256 * 1024
_MODELS = 20
"""Entries of a list that are written in one go."""


class PiecesReply(Response):
    """A reply whose body is there already, in several pieces."""

    def __init__(
        self, pieces: Sequence[bytes | memoryview], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(None, headers=headers, media_type=media_type)
        self._pieces = pieces
        self.headers["content-length"] = str(sum(map(len, pieces)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send_pieces(send, self._pieces)


async def send_pieces(send: Send, pieces: Sequence[bytes | memoryview]) -> None:
    """Send the body of a reply. ``send`` waits while the client reads too slowly."""
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": bytes(piece), "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": bytes(pieces[-1]) if pieces else b""})


def cut(data: bytes) -> list[bytes | memoryview]:
    """Cut the data into views that can each be written in one go."""
    if len(data) <= PIECE:
        return [data]
    view = memoryview(data)
    return [view[at : at + PIECE] for at in range(0, len(view), PIECE)]


async def object_pieces(plain: Mapping[str, Any], texts: Mapping[str, bytes]) -> list[bytes]:
    """Return a JSON object: these values, and these texts, which are what a program has printed and may be anything."""
    pieces = [to_json(plain)[:-1]]
    for name, data in texts.items():
        pieces.append(b',"%b":"' % name.encode() if pieces[-1] != b"{" else b'"%b":"' % name.encode())
        pieces += [piece async for piece in _escaped(data)]
        pieces.append(b'"')
    pieces.append(b"}")
    return pieces


async def _escaped(data: bytes) -> AsyncIterator[bytes]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    view = memoryview(data)
    for at in range(0, len(view), PIECE):
        yield to_json(decode(view[at : at + PIECE], at + PIECE >= len(view)))[1:-1]
        await asyncio.sleep(0)


async def list_reply(name: str, models: Iterable[BaseModel], rest: Mapping[str, Any] | None = None) -> Response:
    """Return a JSON object with one list of models, each made when it is written; ``rest`` are its other values."""
    pieces = [b'{"%b":[' % name.encode()]
    between = b""
    for some in batched(models, _MODELS):
        pieces.append(between + b",".join([model.model_dump_json().encode() for model in some]))
        between = b","
        await asyncio.sleep(0)
    return PiecesReply([*pieces, b"]," + to_json(rest)[1:] if rest else b"]}"], JSON)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items; the last may be shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
