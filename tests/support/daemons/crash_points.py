"""Where a daemon can die: every step into, and out of, what outlives it (store, driver, agent).

A ``Fuse`` counts the steps of the objects that it is wired to, and blows at one of them. What follows is the user's
choice: a child process kills itself with -9; a daemon in the test's own process is cut off from everything, so that
nothing of it does anything any more, as if it were gone.
"""

import abc
import asyncio
import functools
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from holdfast.agents.base import Agent
from holdfast.errors import Unavailable
from holdfast.store import Store

_STORES = ("sessions", "snapshots", "threads", "leases", "messages", "turns", "thread_events", "thread_files")
_CLOCKWORK = {
    *("abandoned", "now", "renew", "release_all", "idle", "touch", "expired"),
    *("by_status", "prune_destroyed", "all", "on_node", "deleted", "purge", "remove_unused"),
}
"""What happens by the clock, whatever is asked for; counting it would make the number of a step a matter of luck."""


class Fuse(abc.ABC):
    """``at`` is the number of the step at which it blows, from 1; None: never. ``steps`` are those seen so far."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.steps: list[str] = []
        self.lit = False
        self.blown = asyncio.Event()

    async def step(self, name: str) -> None:
        if not self.lit:
            return
        self.steps.append(name)
        if len(self.steps) == self.at:
            self.blown.set()
        await self.check()

    async def check(self) -> None:
        """Whoever comes here after the end does not go on."""
        if self.blown.is_set():
            await self.died()

    @abc.abstractmethod
    async def died(self) -> None:
        """What follows; it does not return."""


class SuicideFuse(Fuse):
    """The process is gone, as after ``kill -9``."""

    async def died(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()


class CuttingFuse(Fuse):
    """Nobody comes through any more. ``bury`` ends those who wait, so that the remains can be cleared away."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(at)
        self._buried = asyncio.Event()

    async def died(self) -> None:
        await self._buried.wait()
        raise asyncio.CancelledError

    def bury(self) -> None:
        self.blown.set()
        self._buried.set()


_Stream = Callable[..., AsyncIterator[object]]


class _Step(Protocol):
    def __call__(self, *args: object, **more: object) -> Awaitable[object]: ...


def wire_store(store: Store, fuse: Fuse) -> None:
    for name in _STORES:
        wire(getattr(store, name), fuse, name)


def wire(target: object, fuse: Fuse, label: str) -> None:
    """All of its public methods that can be awaited, on this object alone."""
    for name, method in inspect.getmembers(target, callable):
        if name.startswith("_"):
            continue
        if inspect.iscoroutinefunction(method):
            called = _uncounted(method, fuse) if name in _CLOCKWORK else _call(method, fuse, f"{label}.{name}")
            setattr(target, name, called)
        elif isinstance(target, Agent) and inspect.isasyncgenfunction(method):
            setattr(target, name, _stream(method, fuse))


def _call(method: _Step, fuse: Fuse, name: str) -> _Step:
    @functools.wraps(method)
    async def stepping(*args: object, **more: object) -> object:
        await fuse.step(f"before {name}")
        result = await method(*args, **more)
        await fuse.step(f"after {name}")
        return result

    return stepping


def _uncounted(method: _Step, fuse: Fuse) -> _Step:
    @functools.wraps(method)
    async def checking(*args: object, **more: object) -> object:
        if fuse.blown.is_set():
            raise Unavailable("this daemon is dead")
        return await method(*args, **more)

    return checking


def _stream(method: _Stream, fuse: Fuse) -> _Stream:
    @functools.wraps(method)
    async def stepping(*args: object, **more: object) -> AsyncIterator[object]:
        await fuse.check()
        async for item in method(*args, **more):
            await fuse.check()  # how many come at once is a matter of luck: their being stored is the step
            yield item

    return stepping
