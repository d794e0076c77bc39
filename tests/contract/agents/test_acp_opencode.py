"""OpenCode over ACP, in a real sandbox, against the demo model: as a pair, and all with ``TEST_WHOLE_SUITE=1``."""

import os
from collections.abc import AsyncIterator

import pytest

from holdfast.agents.acp.adapter import OpencodeAcp
from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.conformance.essentials import PairConformance
from support.agents.harness import real_agent, traces

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[Harness]:
    async with real_agent(OpencodeAcp, "opencode-acp", "opencode", memory_mb=1536) as harness:
        yield harness


if os.environ.get("TEST_WHOLE_SUITE"):

    class TestOpencodeAcp(AgentConformance):
        pass

else:

    class TestAsAPair(PairConformance):
        pass


async def test_nothing_of_it_is_among_the_users_files(harness: Harness) -> None:
    assert await traces(harness) == []
