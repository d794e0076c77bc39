"""The demo model, which is in this process, as if it were a provider."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from holdfast.broker import demo
from holdfast.broker.models.providers.upstream import Outgoing, Reply, Upstream


class DemoUpstream(Upstream):
    async def send(self, outgoing: Outgoing, /) -> Reply:
        query = f"?{urlencode(list(outgoing.query))}" if outgoing.query else ""
        # Long lines are shortened for it: it reads no images, and needs no more than the beginning of a line.
        body = outgoing.lifted.shortened(outgoing.body or b"")
        # In a thread, which takes turns with all else: a short script may ask for a long answer.
        return _DemoReply(await asyncio.to_thread(demo.reply, outgoing.method, outgoing.path + query, body))

    async def close(self) -> None:
        """There is nothing to close."""


class _DemoReply(Reply):
    def __init__(self, reply: demo.DemoReply) -> None:
        self._pieces = reply.pieces
        self.status = reply.status
        self.headers = list(reply.headers.items())

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            await asyncio.sleep(piece.after)  # also for none: others are to have their turn
            yield piece.data

    def close(self) -> None:
        self._pieces = iter(())
