"""What a slow writer reads from a quick source: all that has come meanwhile, at once."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

T = TypeVar("T")


class _End:
    """The source has ended; with this error, or without."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


async def batches(
    source: AsyncGenerator[T, None],
    most: int = 200,
    *,
    may_wait: Callable[[T], bool] = lambda _item: False,
    seconds: float = 0.0,
) -> AsyncGenerator[list[T], None]:
    """Everything from ``source`` in order, in lists of about ``most``. Its error comes after what came before it.

    What ``may_wait``, as long as nothing else comes, does so until ``seconds`` after the list before.
    """
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
        until = 0.0
        while True:
            batch, end = _drain(await queue.get(), queue)
            while end is None and len(batch) < most and all(map(may_wait, batch)):
                item = await _next(queue, until)
                if item is None:
                    break
                more, end = _drain(item, queue)
                batch += more
            if batch:
                yield batch
                until = asyncio.get_running_loop().time() + seconds
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


async def _next(queue: "asyncio.Queue[T | _End]", until: float) -> T | _End | None:
    """None if nothing comes by then."""
    if queue.empty() and until <= asyncio.get_running_loop().time():
        return None
    try:
        async with asyncio.timeout_at(until):
            return await queue.get()
    except TimeoutError:
        return None


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
