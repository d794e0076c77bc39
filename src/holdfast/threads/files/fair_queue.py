"""Turns at something that few can have at a time: owners take turns, however many each of them has waiting."""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator


class QueueFull(Exception):
    """So many of one owner wait already."""


class FairQueue:
    """``places`` at a time, each of another owner; at most ``waiting`` of one owner wait."""

    def __init__(self, places: int, waiting: int) -> None:
        self._places = places
        self._most_waiting = waiting
        self._busy: set[str] = set()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By owner; whose turn is next stands first."""

    @contextlib.asynccontextmanager
    async def turn(self, owner: str, *, seconds: float) -> AsyncIterator[None]:
        """Raises ``QueueFull`` where too many of this owner wait, and TimeoutError when it does not come in time."""
        await self._come(owner, seconds)
        try:
            yield
        finally:
            self._busy.discard(owner)
            if owner in self._waiting:
                self._waiting.move_to_end(owner)
            self._next()

    async def _come(self, owner: str, seconds: float) -> None:
        queue = self._waiting.setdefault(owner, deque())
        if len(queue) >= self._most_waiting:
            raise QueueFull
        place = asyncio.get_running_loop().create_future()
        queue.append(place)
        self._next()
        try:
            async with asyncio.timeout(seconds):
                await place
        except BaseException:
            self._leave(owner, place)
            raise

    def _leave(self, owner: str, place: "asyncio.Future[None]") -> None:
        """Who goes may have been called in the same moment."""
        queue = self._waiting.get(owner, deque())
        if place in queue:
            queue.remove(place)
        elif place.done() and not place.cancelled():
            self._busy.discard(owner)
        self._next()

    def _next(self) -> None:
        for owner in list(self._waiting):
            queue = self._waiting[owner]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._waiting[owner]
            elif owner not in self._busy and len(self._busy) < self._places:
                self._busy.add(owner)
                queue.popleft().set_result(None)
