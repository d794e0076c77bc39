"""A heartbeat for long calls: it pings the runner meanwhile, so that a frozen runner is noticed early.

A short call costs one timer and nothing else.
"""

import asyncio

from holdfast.errors import HoldfastError
from holdfast.link.link import Link
from holdfast.protocol import frames


async def call_with_pulse(
    link: Link, op: str, fields: frames.Header, body: bytes, *, timeout: float, every: float
) -> frames.Frame:
    """Do ``link.call`` with a ping every ``every`` seconds; a ping without an answer in that time ends the call."""
    pulse = _Pulse(link, every)
    try:
        async with pulse.limit:
            return await link.call(op, fields, body, timeout=timeout)
    except TimeoutError:
        if pulse.failure is None:
            raise
        raise pulse.failure from None
    finally:
        pulse.stop()


class _Pulse:
    def __init__(self, link: Link, every: float) -> None:
        self._link = link
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self._ask)
        self._asking: asyncio.Task[None] | None = None
        self.limit = asyncio.timeout(None)
        self.failure: HoldfastError | None = None

    def stop(self) -> None:
        self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        self._asking = self._loop.create_task(self._ping())

    async def _ping(self) -> None:
        try:
            await self._link.call("ping", {}, timeout=self._every)
        except HoldfastError as failure:
            self.failure = failure
            self.limit.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(self._every, self._ask)
