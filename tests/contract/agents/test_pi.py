"""Pi by its RPC mode, in a real sandbox, against the demo model."""

from collections.abc import AsyncIterator

import pytest

from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.pi.adapter import PiAgent
from support.agent_harness import PATIENCE, real_agent

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[Harness]:
    async with real_agent(lambda: PiAgent(PATIENCE), "pi", "pi") as harness:
        harness.replays = True
        harness.long_words = 25_000
        yield harness


class TestPi(AgentConformance):
    pass
