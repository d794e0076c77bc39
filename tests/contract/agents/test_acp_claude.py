"""Claude Code over ACP, in a real sandbox, against the demo model."""

from collections.abc import AsyncIterator

import pytest

from holdfast.agents.acp.adapter import Claude
from holdfast.agents.base import Place
from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.conformance.harness import eventually, raises, reason_of, talk, text_of
from holdfast.errors import AgentDown
from holdfast.sessions.use.processes import ProcessRequest
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.harness import real_agent, traces

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[Harness]:
    async with real_agent(Claude, "claude", "claude-agent-acp", memory_mb=1024) as harness:
        harness.tells_output_early = False
        yield harness


class TestClaude(AgentConformance):
    pass


async def test_the_program_within_dies_and_the_next_turn_finds_another(harness: Harness) -> None:
    """The adapter's own process lives on, and would answer every prompt with the same error."""
    async with talk(harness) as one:
        await one.turn(harness.wishes.say("begun"))  # what dies in its first turn may have kept nothing of it
        prompt_id = await one.prompt(harness.wishes.wait_for(one.path("never")))
        await one.read_until(prompt_id, Kind.TOOL_UPDATE)
        kill = ProcessRequest(cmd="pkill -KILL -f 'claude-agent-sd[k]-linux'")
        await one.place.sandbox.processes.start(one.place.session_id, kill, idempotency_key=None)
        assert reason_of(await one.read(prompt_id)) is StopReason.ERROR
        await raises(AgentDown, one.agent.resume_conversation(one.place, one.conversation))
        await one.agent.start(one.place)
        await one.agent.resume_conversation(one.place, one.conversation)
        assert "again" in text_of(await one.turn(harness.wishes.say("again")))


async def test_a_new_conversation_takes_the_place_of_the_one_before(harness: Harness) -> None:
    """Each open one is a program of some 100 MB: a handful of them is more than the sandbox may have."""
    async with talk(harness) as one:
        await one.turn(harness.wishes.say("pear"))
        assert await programs(one.place) == 1
        await one.agent.create_conversation(one.place)

        async def alone() -> bool:
            return await programs(one.place) == 1

        await eventually(alone, "the program of the conversation before is gone")
        await one.agent.resume_conversation(one.place, one.conversation)
        assert "yes" in text_of(await one.turn(harness.wishes.recall("pear")))


async def programs(place: Place) -> int:
    """How many of those that do an open conversation's work there are in the sandbox."""
    request = ProcessRequest(cmd="pgrep -f 'claude-agent-sd[k]-linux.*stream-json' | wc -l")
    processes = place.sandbox.processes
    started = await processes.start(place.session_id, request, idempotency_key=None)
    assert not (await processes.get(place.session_id, started.process_id, wait_ms=30_000)).running
    chunks, _ = await processes.read(place.session_id, started.process_id, offset=0, limit=4096)
    return int(b"".join(chunk.data for chunk in chunks))


async def test_nothing_of_it_is_among_the_users_files(harness: Harness) -> None:
    assert await traces(harness) == []
