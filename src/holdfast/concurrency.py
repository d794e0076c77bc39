"""Idioms of concurrency that several packages need, each hardened once."""

import asyncio
import contextlib
from collections import UserDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar, overload
from weakref import WeakValueDictionary

import structlog

from holdfast.errors import HoldfastError

F = TypeVar("F", bound="asyncio.Future[Any]")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")

log = structlog.get_logger(__name__)

_END: Any = object()


def seen(future: F) -> F:
    """Return the same future. Its error, if it ends with one, counts as seen: whoever still waits has it, and asyncio
    does not complain of it in the log when nobody does."""
    future.add_done_callback(_look)
    return future


def _look(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


async def cancel_and_wait(*futures: "asyncio.Future[Any]") -> None:
    """Cancel these, and wait until each has ended, however it ends; its error counts as seen.

    A second cancellation, of the caller, does not cut the wait short: it is raised when all have ended.
    """
    for future in futures:
        seen(future).cancel()
    cancelled = False
    while unfinished := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(unfinished)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def until_one_ends(*works: Coroutine[Any, Any, object]) -> None:
    """Run these side by side until one of them ends, and cancel the others; raises what one of them has raised."""
    tasks = [seen(asyncio.ensure_future(work)) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def next_or_silence(items: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T | None, None]:
    """Yield the same items, and None each time that nothing came for ``seconds``. It closes ``items`` at its end."""
    async with contextlib.aclosing(items):
        while True:
            coming = asyncio.ensure_future(anext(items, _END))
            try:
                while not (await asyncio.wait([coming], timeout=seconds))[0]:
                    yield None
                item = coming.result()
            finally:
                await cancel_and_wait(coming)  # a generator that still runs cannot be closed
            if item is _END:
                return
            yield item


async def every(
    seconds: float, work: Callable[[], Awaitable[object]], *, on_failure: str, at_once: bool = False
) -> None:
    """Do the work each ``seconds``, for ever. A failure is logged under the name ``on_failure`` and does not end it."""
    if not at_once:
        await asyncio.sleep(seconds)
    while True:
        try:
            await work()
        except HoldfastError as error:
            log.warning(on_failure, work=work.__qualname__, code=error.code, error=error.message)
        except Exception:
            log.exception(on_failure, work=work.__qualname__)
        await asyncio.sleep(seconds)


class KeyedLocks(Generic[K]):
    """One lock for each key. A lock that nobody holds or waits for is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: K) -> asyncio.Lock:
        """Return the lock of this key: ``async with locks.of(key): …``."""
        return self._locks.setdefault(key, asyncio.Lock())


class Bounded(UserDict[K, V]):
    """A dictionary that keeps the ``most`` entries that were written last, and forgets the others."""

    def __init__(self, most: int) -> None:
        self._most = most
        super().__init__()

    def __setitem__(self, key: K, value: V) -> None:
        self.data.pop(key, None)
        self.data[key] = value
        if len(self.data) > self._most:
            del self.data[next(iter(self.data))]

    @overload
    def setdefault(self: "Bounded[K, D | None]", key: K, default: None = None) -> D | None: ...
    @overload
    def setdefault(self, key: K, default: V) -> V: ...
    def setdefault(self, key: K, default: Any = None) -> Any:
        """As of any dictionary; an entry that is there counts as written now."""
        self[key] = self.data.get(key, default)
        return self.data[key]


class Broadcast:
    """Wakes all that wait at this moment; who comes later waits for the next time."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def send(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()
