"""Who waits for an agent's words may be sent away twice at once: by two deadlines, say."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from holdfast.agents.supervisor.output import Item, or_silence

pytestmark = pytest.mark.anyio


async def test_two_deadlines_at_once_end_it_cleanly() -> None:
    ended = asyncio.Event()

    async def output() -> AsyncGenerator[Item, None]:
        try:
            await asyncio.Event().wait()
            yield  # type: ignore[misc]  # never reached: it only makes this a generator
        finally:
            await asyncio.sleep(0.05)  # as a connection that is closed in order
            ended.set()

    async def read() -> None:
        async with contextlib.aclosing(or_silence(output(), 60)) as items:
            async for _item in items:
                pass

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert ended.is_set()
