import asyncio
from collections.abc import AsyncGenerator

import pytest

from holdfast.threads.turns.batches import batches
from support.waiting import until

pytestmark = pytest.mark.anyio


async def numbers(count: int, error: Exception | None = None) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number
    if error is not None:
        raise error


async def test_all_in_order_in_few_pieces() -> None:
    found = []
    async for batch in batches(numbers(1000), most=100):
        found.append(batch)
        await asyncio.sleep(0)
    assert [number for batch in found for number in batch] == list(range(1000))
    assert all(len(batch) <= 101 for batch in found)
    assert len(found) < 1000


async def test_an_error_comes_after_what_came_before_it() -> None:
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        async for batch in batches(numbers(10, ZeroDivisionError())):
            seen += batch
    assert seen == list(range(10))


async def test_the_source_is_closed_when_the_reader_goes() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.set()

    reader = batches(source())
    assert await anext(reader)
    await reader.aclose()
    await asyncio.wait_for(closed.wait(), 1)


@pytest.mark.parametrize("urgent", [True, False])
async def test_what_may_wait_does_so_until_something_else_comes_or_its_time_is_up(urgent: bool) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def source() -> AsyncGenerator[int, None]:
        while True:
            yield await queue.get()

    reader = batches(source(), may_wait=lambda number: number > 0, seconds=3600.0 if urgent else 1.0)
    queue.put_nowait(1)
    assert await anext(reader) == [1], "there was nothing before it"
    coming = asyncio.ensure_future(anext(reader))
    queue.put_nowait(2)
    queue.put_nowait(3)
    await until(queue.empty, "they are on their way")
    if urgent:
        assert not coming.done()
        queue.put_nowait(0)
    async with asyncio.timeout(30):
        assert await coming == ([2, 3, 0] if urgent else [2, 3])
    await reader.aclose()
