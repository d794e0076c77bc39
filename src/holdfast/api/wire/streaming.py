"""Replies that are sent as they are made: they stop when the client goes, and break off when they cannot go on.

Half a reply must never look like a whole one, so after a failure in the middle the connection is cut: the server does
that with a reply that is not finished.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from typing import Any

import structlog
from starlette.types import Receive, Send

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import BadInput, HoldfastError

STALL_SECONDS = 300.0
"""How long a client may take nothing, or send nothing, in the middle of a transfer."""

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, or until the client has gone away; raises what it raises."""
    working = seen(asyncio.ensure_future(work))
    leaving = seen(asyncio.ensure_future(_client_left(receive)))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(working, leaving)
    if not working.cancelled():
        working.result()


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_body(send: Send, pieces: AsyncIterable[bytes], what: str) -> None:
    """Send all pieces, then the end. If a piece fails, send no end: the server then cuts the connection."""
    try:
        async for piece in pieces:
            async with asyncio.timeout(STALL_SECONDS):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    except HoldfastError as error:
        log.warning("reply cut off", what=what, code=error.code, error=error.message)
        return
    except TimeoutError:
        log.warning(
            "reply cut off", what=what, code="stalled", error=f"the client took nothing for {STALL_SECONDS:g} s"
        )
        return
    await send({"type": "http.response.body", "body": b""})


async def arriving(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield a request's body as it comes. Raises ``BadInput`` if it stops coming."""
    rest = aiter(pieces)
    while True:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                piece = await anext(rest, None)
        except TimeoutError:
            raise BadInput(f"the request's body stopped: nothing came for {STALL_SECONDS:g} s") from None
        if piece is None:
            return
        yield piece
