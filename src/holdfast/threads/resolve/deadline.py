"""How long a resolve may take. Its clock stands still only while something is made that has a longer limit of its own.

So a sandbox that is made, a repository that is cloned and an agent that is started get the time that they need, and
everything else together gets ``resolve_seconds``. What is broken off goes on by itself, or is found by the next attempt
as it was left: sessions are made, woken and revived by tasks of their own, git works on beside its target, and an agent
that is up without having been heard is asked, or ended, before another is started.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from holdfast.errors import HoldfastError, Unavailable


class ResolveTime:
    """Of one resolve. ``seconds`` in all; ``least``: an attempt that was begun in time may take so long."""

    def __init__(self, seconds: float, *, least: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._until = self._loop.time() + seconds
        self._least = least
        self._limit: asyncio.Timeout | None = None

    def is_up_in(self, seconds: float) -> bool:
        return self._loop.time() + seconds > self._until

    @contextlib.asynccontextmanager
    async def attempt(self, last: HoldfastError | None) -> AsyncIterator[None]:
        """Limit one attempt. Raises ``last``, the error of the one before, or ``Unavailable``, when the time is up."""
        until = max(self._until, self._loop.time() + self._least)
        try:
            async with asyncio.timeout_at(until) as self._limit:
                yield
        except TimeoutError:
            if self._limit is None or not self._limit.expired():
                raise  # somebody else's
            raise last or Unavailable(f"the sandbox or its agent did not answer within {self._seconds:g} s") from None
        finally:
            self._limit = None

    @contextlib.contextmanager
    def longer(self, seconds: float) -> Iterator[None]:
        """Give what is done in here so much time of its own."""
        limit = self._limit
        when = None if limit is None else limit.when()
        if limit is None or when is None or limit.expired():
            yield
            return
        left = when - self._loop.time()
        limit.reschedule(self._loop.time() + max(seconds, left))
        try:
            yield
        finally:
            if not limit.expired():
                limit.reschedule(self._loop.time() + left)
