"""Async iterators for code that is not async: each step is one call into the client's own thread."""

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from anyio.from_thread import BlockingPortal

T = TypeVar("T")


def iterate(portal: BlockingPortal, items: AsyncIterator[T]) -> Iterator[T]:
    """The same items. Leaving the loop early, or closing what this returns, closes the async one."""
    nothing = object()

    async def step() -> object:
        return await anext(items, nothing)

    async def close() -> None:
        if hasattr(items, "aclose"):
            await items.aclose()

    try:
        while (item := portal.call(step)) is not nothing:
            yield item  # type: ignore[misc]  # it is a T, unless it is our own mark
    finally:
        portal.call(close)
