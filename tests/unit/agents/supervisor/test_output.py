"""Reading what an agent says, by one who goes away."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Mapping

import pytest

from holdfast.agents.supervisor.output import or_silence
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

    reading = or_silence(output(), 0.01)
    assert isinstance(await anext(reading), Attached)
    assert await anext(reading) is None
    broken.set()
    for _ in range(5):  # until it has come to its end
        await asyncio.sleep(0)
    await reading.aclose()
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []
