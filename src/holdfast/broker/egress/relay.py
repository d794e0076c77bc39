"""Bytes between two streams, both ways, until both have ended or neither has moved for too long."""

import asyncio
import contextlib
from collections.abc import Callable

from holdfast.broker.egress.upstream import Stream

CHUNK = 1 << 16


class Deadline:
    """A time by which something must have moved; ``postpone`` it whenever something has."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds

    def postpone(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def relay(
    inside: Stream, outside: Stream, deadline: Deadline, sent: Callable[[int], None], received: Callable[[int], None]
) -> None:
    """``sent`` and ``received`` are told the size of each piece. Closes nothing: both streams are the caller's."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_carry(inside[0], outside[1], deadline, sent))
        both.create_task(_carry(outside[0], inside[1], deadline, received))


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, deadline: Deadline, moved: Callable[[int], None]
) -> None:
    """To the end, which is passed on. A side that breaks off ends its direction only; the other finds out by itself."""
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
            deadline.postpone()
            moved(len(data))
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: it is closed already
        target.write_eof()
