"""Blocking work in a thread, which its caller always sees the end of."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import to_thread

_T = TypeVar("_T")


async def run_to_the_end(work: Callable[..., _T], *arguments: object) -> _T:
    """Run ``work`` in a thread. A caller that is cancelled is let go only when the thread has finished.

    So nothing goes on behind the back of whoever cancelled: what he sees afterwards is what there is.
    """
    task = asyncio.ensure_future(to_thread.run_sync(work, *arguments))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # the cancellation is what the caller learns
        raise cancelled
    return task.result()
