"""sandbox-agent with opencode behind it, in a real sandbox, against the demo model."""

from collections.abc import AsyncIterator

import pytest

from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.sandbox_agent.adapter import SandboxAgent
from support.agent_harness import PATIENCE, real_agent

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[Harness]:
    async with real_agent(lambda: SandboxAgent(PATIENCE), "sandbox-agent", "sandbox-agent", 1536) as harness:
        yield harness


class TestSandboxAgent(AgentConformance):
    pass
