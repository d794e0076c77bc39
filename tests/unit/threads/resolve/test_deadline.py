"""The time of a resolve: no attempt outlasts it, but for what is made in the meantime."""

import asyncio

import pytest

from holdfast.errors import AgentFailed, Unavailable
from holdfast.threads.resolve.deadline import ResolveTime

pytestmark = pytest.mark.anyio


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_what_hangs_is_broken_off() -> None:
    time = ResolveTime(0.01, least=0.0)
    with pytest.raises(Unavailable, match=r"0\.01 s"):
        async with time.attempt(None):
            await for_ever()
    assert time.is_up_in(0)


async def test_the_error_before_says_more() -> None:
    with pytest.raises(AgentFailed, match="503"):
        async with ResolveTime(0.01, least=0.0).attempt(AgentFailed("503")):
            await for_ever()


async def test_an_attempt_begun_in_time_has_its_least() -> None:
    async with ResolveTime(0.0, least=60.0).attempt(None):
        await asyncio.sleep(0.02)


async def test_what_is_made_has_its_own_limit_and_the_clock_stands_still() -> None:
    time = ResolveTime(0.05, least=0.0)
    with pytest.raises(Unavailable):
        async with time.attempt(None):
            with time.longer(60.0):
                await asyncio.sleep(0.1)
            await asyncio.sleep(0)
            await for_ever()
    with pytest.raises(Unavailable):
        async with time.attempt(None):
            with time.longer(0.01):
                await for_ever()


async def test_the_timeout_of_another_is_not_ours() -> None:
    with pytest.raises(TimeoutError):
        async with ResolveTime(60.0, least=0.0).attempt(None):
            raise TimeoutError
