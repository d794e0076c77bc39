"""What a slow writer reads from a quick source: all that has come meanwhile, at once."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")


class _End:
    """The source has ended; with this error, or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


async def batches(source: AsyncGenerator[T, None], most: int = 200) -> AsyncGenerator[list[T], None]:
    """Everything from ``source`` in order, in lists of at most ``most``. Its error comes after what came before it."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(most)

    async def pump() -> None:
        error: BaseException | None = None
        try:
            async for item in source:
                await queue.put(item)
        except Exception as trouble:  # handed on, to be raised where it is understood
            error = trouble
        await queue.put(_End(error))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(source.aclose)
        task = asyncio.create_task(pump())
        stack.push_async_callback(_end, task)
        while True:
            batch, end = _drain(await queue.get(), queue)
            if batch:
                yield batch
            if end is not None:
                if end.error is not None:
                    raise end.error
                return


def _drain(first: T | _End, queue: "asyncio.Queue[T | _End]") -> tuple[list[T], _End | None]:
    batch: list[T] = []
    item = first
    while True:
        if isinstance(item, _End):
            return batch, item
        batch.append(item)
        if queue.empty():
            return batch, None
        item = queue.get_nowait()


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
