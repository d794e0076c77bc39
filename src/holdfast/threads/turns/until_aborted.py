"""Work that an abort ends at once: what comes before the agent has the prompt of a turn."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class Aborted(Exception):
    """The agent does not have the prompt, and is not given it."""


class UntilAborted:
    """One piece of work at a time."""

    def __init__(self) -> None:
        self._aborted = False
        self._limit: asyncio.Timeout | None = None

    async def do(self, work: Coroutine[None, None, T]) -> T:
        """Raises ``Aborted``, also if that was before."""
        if self._aborted:
            work.close()
            raise Aborted
        try:
            async with asyncio.timeout(None) as self._limit:
                return await work
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise  # somebody else's, and no abort
            raise Aborted from None
        finally:
            self._limit = None

    def abort(self) -> None:
        self._aborted = True
        if self._limit is not None:
            hurry(self._limit, 0)


def hurry(limit: asyncio.Timeout, seconds: float) -> None:
    """So much is left from now on. What is over its time already cannot be given another."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)
