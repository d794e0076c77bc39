"""sandbox-agent in a real sandbox, against the demo model: with opencode behind it as a pair, and how it asks; the
whole suite with pi, which is quicker, or for both with ``TEST_WHOLE_SUITE=1``."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from holdfast.agents.base import Agent
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.conformance.essentials import PairConformance
from holdfast.agents.conformance.harness import eventually, talk, text_of
from holdfast.agents.conformance.permissions import PermissionConformance
from holdfast.agents.conformance.process import ProcessConformance
from holdfast.agents.sandbox_agent.adapter import SandboxAgent, SandboxAgentPi
from holdfast.vocabulary.turn_events import Kind
from support.agents.harness import AgentHarness, real_agent

pytestmark = pytest.mark.anyio

PROGRAM = "sandbox-agent"
KEPT_BY_SERVER = 1024
MANY = 1500
MEMORY_MB = 3072
"""Behind the server, pi has a process for each conversation; the tests begin several before they end it."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


class TestSandboxAgent(AgentConformance):
    @pytest.fixture(scope="module")
    async def harness(self, anyio_backend: str) -> AsyncIterator[AgentHarness]:
        async with real_agent(SandboxAgentPi, "sandbox-agent-pi", PROGRAM, MEMORY_MB) as harness:
            yield harness

    async def test_what_is_said_while_no_daemon_listens_is_not_lost(self, harness: AgentHarness) -> None:
        """More than the server keeps; and then also that is gone."""
        async with talk(harness) as one:
            lines = [
                harness.wishes.wait_for(one.path("go")),
                f"count {MANY}",
                harness.wishes.write(one.path("done"), "x"),
            ]
            prompt_id = await one.prompt(harness.wishes.say("begun"), *lines, harness.wishes.say("and done"))
            first = await one.read_until(prompt_id, Kind.TEXT_DELTA)
            await die(one.agent)
            await one.touch("go")

            async def is_done() -> bool:
                return await harness.read_file(one.place, one.path("done")) is not None

            await eventually(is_done, "the agent has said it all")
            turn = await one.another_daemon().read(prompt_id)
            assert Kind.ERROR not in [told.event.kind for told in turn]
            assert len([told for told in turn if told.event.kind is Kind.TEXT_DELTA]) > KEPT_BY_SERVER
            assert text_of(turn).split() == ["begun", *map(str, range(MANY)), "and", "done"]
            await harness.kill_agent(one.place)
            other = one.another_daemon()
            assert await other.read(prompt_id) == turn
            assert await other.read(prompt_id, first.cursor) == turn[turn.index(first) + 1 :]


async def die(agent: Agent) -> None:
    """As a daemon that is killed: nobody reads along any more, and what it had sent is hung up on."""
    assert isinstance(agent, SandboxAgent)
    tasks = [scribe.task for scribe in agent._scribes.values()] + list(agent._http._held.values())
    assert tasks
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class WithOpencode:
    @pytest.fixture(scope="module")
    async def harness(self, anyio_backend: str) -> AsyncIterator[AgentHarness]:
        async with real_agent(SandboxAgent, "sandbox-agent", PROGRAM, 1536) as harness:
            yield harness


if os.environ.get("TEST_WHOLE_SUITE"):

    class TestSandboxAgentWithOpencode(WithOpencode, AgentConformance):
        pass

else:

    class TestWithOpencodeAsAPair(WithOpencode, PairConformance):
        test_an_abort_closes_the_question = PermissionConformance.test_an_abort_closes_the_question
        test_one_that_hangs = ProcessConformance.test_one_that_hangs_is_found_out_and_replaced
