"""From async to sync, for what comes bit by bit: an async generator as an ordinary one."""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Generic, TypeVar

from anyio import CancelScope, EndOfStream, create_memory_object_stream
from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class _Way(Generic[T]):
    """Between the two: made on the portal's side, where streams and scopes belong."""

    def __init__(self) -> None:
        self.send, self.receive = create_memory_object_stream[T](0)
        self.scope = CancelScope()

    async def pump(self, items: AsyncGenerator[T, None]) -> None:
        with self.scope:
            async with self.send, aclosing(items):
                async for item in items:
                    await self.send.send(item)


def iterate(portal: BlockingPortal, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield each item as it comes, in the caller's thread. Closing this, or leaving its loop, closes ``items`` too.

    One task on the portal's side goes along ``items`` from beginning to end, as what they do inside may need: a
    timeout, for one, belongs to the task that set it. It is at most one item ahead.
    """
    way = portal.call(_Way[T])
    pumping = portal.start_task_soon(way.pump, items)
    try:
        while True:
            try:
                item = portal.call(way.receive.receive)
            except EndOfStream:
                break
            yield item
    finally:
        portal.call(way.scope.cancel)
        pumping.result()  # waits until all is closed; raises what ended it
        portal.call(way.receive.close)
