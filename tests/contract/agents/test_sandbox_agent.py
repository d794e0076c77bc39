"""sandbox-agent in a real sandbox, against the demo model: with opencode behind it the essential part, and how it asks;
the whole suite with pi, which is quicker, or for both with ``TEST_WHOLE_SUITE=1``."""

import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.agents.base import Place
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.conformance.essentials import EssentialConformance
from holdfast.agents.conformance.permissions import PermissionConformance
from holdfast.agents.sandbox_agent.adapter import SandboxAgent, SandboxAgentPi
from support.agent_harness import PATIENCE, AgentHarness, real_agent

pytestmark = pytest.mark.anyio

PROGRAM = "sandbox-agent"
MOST_SESSIONS = 8
"""Of one server: behind it, pi has a process for each."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
def tests() -> Iterator[int]:
    return itertools.count(1)


class TestSandboxAgent(AgentConformance):
    @pytest.fixture(scope="module")
    async def shared(self, anyio_backend: str) -> AsyncIterator[AgentHarness]:
        async with real_agent(lambda: SandboxAgentPi(PATIENCE), "sandbox-agent-pi", PROGRAM, 3072) as harness:
            yield harness

    @pytest.fixture
    async def harness(self, shared: AgentHarness, tests: Iterator[int]) -> AsyncIterator[AgentHarness]:
        yield shared
        if next(tests) % MOST_SESSIONS == 0:
            await shared.make_agent().stop(Place(shared.sessions[0], shared.service, brief=shared.brief()))


class WithOpencode:
    @pytest.fixture(scope="module")
    async def harness(self, anyio_backend: str) -> AsyncIterator[AgentHarness]:
        async with real_agent(lambda: SandboxAgent(PATIENCE), "sandbox-agent", PROGRAM, 1536) as harness:
            yield harness


if os.environ.get("TEST_WHOLE_SUITE"):

    class TestSandboxAgentWithOpencode(WithOpencode, AgentConformance):
        pass

else:

    class TestWithOpencodeEssentially(WithOpencode, EssentialConformance):
        test_an_abort_closes_the_question = PermissionConformance.test_an_abort_closes_the_question
