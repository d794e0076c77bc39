"""Blocking work in a thread, which its caller always sees the end of."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import anyio
from anyio import to_thread

_T = TypeVar("_T")


async def run_to_the_end(work: Callable[..., _T], *arguments: object) -> _T:
    """Run ``work`` in a thread. A caller that is cancelled is let go only when the thread has finished.

    So nothing goes on behind the back of whoever cancelled: what he sees afterwards is what there is.
    """
    return await _see_the_end(asyncio.ensure_future(to_thread.run_sync(work, *arguments)))


async def run_at_length(work: Callable[..., _T], *arguments: object) -> _T:
    """The same for what takes as long as a sandbox has made it, such as removing all its files: in a thread of its own.

    The threads that are shared are few. A handful of sessions with a million files each, destroyed together, would have
    all of them for minutes, and everybody else would wait. There is at most one such work per session.
    """
    alone = ThreadPoolExecutor(1, thread_name_prefix="at-length")
    call = functools.partial(contextvars.copy_context().run, work, *arguments)
    try:
        return await _see_the_end(asyncio.get_running_loop().run_in_executor(alone, call))
    finally:
        alone.shutdown(wait=False)


def run_in_new_thread(work: Callable[[], _T]) -> _T:
    """Run this in a thread of its own, which ends with it: it may leave namespaces, or become somebody else. Blocks."""
    result: Future[_T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result.result()


async def _see_the_end(task: asyncio.Future[_T]) -> _T:
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
