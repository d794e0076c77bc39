"""Reading what an agent says, by one who goes away, or is sent away twice at once: by two deadlines, say."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Mapping

import pytest

from holdfast.concurrency import next_or_silence
from holdfast.errors import AgentDown
from holdfast.sessions.use.follow import Attached

pytestmark = pytest.mark.anyio


async def test_what_breaks_when_nobody_reads_any_more_is_nobodys_error() -> None:
    unheard: list[Mapping[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: unheard.append(told))
    broken = asyncio.Event()

    async def output() -> AsyncGenerator[Attached, None]:
        yield Attached()
        await broken.wait()
        raise AgentDown("it hung up")

    reading = next_or_silence(output(), 0.01)
    assert isinstance(await anext(reading), Attached)
    assert await anext(reading) is None
    broken.set()
    for _ in range(5):  # until it has come to its end
        await asyncio.sleep(0)
    await reading.aclose()
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


async def test_two_deadlines_at_once_end_it_cleanly() -> None:
    ended = asyncio.Event()

    async def output() -> AsyncGenerator[Attached, None]:
        try:
            await asyncio.Event().wait()
            yield Attached()  # never reached: it only makes this a generator
        finally:
            await asyncio.sleep(0.05)  # as a connection that is closed in order
            ended.set()

    async def read() -> None:
        async with contextlib.aclosing(next_or_silence(output(), 60)) as items:
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
