"""From async to sync: how iterators and context managers of the async client are used by code that is not async."""

from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from anyio.from_thread import BlockingPortal

T = TypeVar("T")


def iterate(portal: BlockingPortal, items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items, one by one. Leaving the loop early closes the generator in its own event loop."""
    try:
        while True:
            try:
                item = portal.call(items.__anext__)
            except StopAsyncIteration:
                return
            yield item
    finally:
        portal.call(items.aclose)
