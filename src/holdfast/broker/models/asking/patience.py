"""Limits the wait for the first byte of an answer: it is shorter if another candidate can be asked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from holdfast.concurrency import seen


@dataclass(frozen=True, slots=True)
class Patience:
    seconds: float
    longest: float
    """For who is the last."""
    is_last: Callable[[], Awaitable[bool]] | None = None
    """Asked only when the time is up, since it may take a while to find out; None: that is known."""

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises ``TimeoutError``."""
        if self.is_last is None:
            async with asyncio.timeout(self.seconds):
                yield
            return
        async with asyncio.timeout(self.longest) as limit:
            waiting = seen(asyncio.ensure_future(self._wait(limit, self.is_last)))
            try:
                yield
            finally:
                waiting.cancel()

    async def _wait(self, limit: asyncio.Timeout, is_last: Callable[[], Awaitable[bool]]) -> None:
        await asyncio.sleep(self.seconds)
        if not await is_last():
            limit.reschedule(asyncio.get_running_loop().time())
