"""Codex over ACP, in a real sandbox, against the demo model. The essential part; all with ``TEST_WHOLE_SUITE=1``."""

import os
from collections.abc import AsyncIterator

import pytest

from holdfast.agents.acp.adapter import Codex
from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.conformance.essentials import EssentialConformance
from support.agents.harness import real_agent, traces

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[Harness]:
    async with real_agent(Codex, "codex", "codex-acp") as harness:
        harness.tells_output_early = False
        yield harness


if os.environ.get("TEST_WHOLE_SUITE"):

    class TestCodex(AgentConformance):
        pass

else:

    class TestEssentially(EssentialConformance):
        pass


async def test_nothing_of_it_is_among_the_users_files(harness: Harness) -> None:
    assert await traces(harness) == []
