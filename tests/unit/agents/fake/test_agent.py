"""The fake agent's own part: what it injects, and that it dies and forgets as its sandbox does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agents.base import START, AgentEvent, Place, Prompt
from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.errors import (
    AgentDown,
    AgentFailed,
    AgentSessionMissing,
    HoldfastError,
    SandboxLost,
    SessionGone,
    WrongState,
)
from holdfast.records.machine import PausedAs
from holdfast.sessions.service import SessionService
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import FakeHost, new, open_host, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    async with open_host(tmp_path) as host:
        yield host


@pytest.fixture
async def service(host: FakeHost) -> AsyncIterator[SessionService]:
    async with host.daemon() as service:
        yield service


@pytest.fixture
def agent(host: FakeHost) -> FakeAgent:
    return FakeAgent(FakeAgentWorld(host.world), deadline_seconds=0.5)


@pytest.fixture
async def place(service: SessionService, agent: FakeAgent) -> Place:
    place = Place(await new(service), service)
    await agent.start(place)
    return place


async def read(agent: FakeAgent, place: Place, conversation: str, prompt_id: str) -> list[AgentEvent]:
    return [told async for told in agent.events(place, conversation, prompt_id, START)]  # type: ignore[arg-type]  # any text is an id


async def test_a_lost_reply_is_an_accepted_prompt(agent: FakeAgent, place: Place) -> None:
    conversation = await agent.create_conversation(place)
    agent.inject("prompt", error=AgentFailed("the reply was lost"), moment="after")
    with pytest.raises(AgentFailed):
        await agent.prompt(place, conversation, Prompt("p1", "say hello"))
    assert await agent.accepted(place, conversation, "p1")
    await agent.prompt(place, conversation, Prompt("p1", "say hello"))
    assert agent.world.ran == [(place.session_id, "p1")]


async def test_a_fault_before_leaves_nothing(agent: FakeAgent, place: Place) -> None:
    conversation = await agent.create_conversation(place)
    agent.inject("prompt", error=AgentDown("not there"))
    with pytest.raises(AgentDown):
        await agent.prompt(place, conversation, Prompt("p1", "say hello"))
    assert not await agent.accepted(place, conversation, "p1")


async def test_a_reader_is_cut_off_in_the_middle_and_reads_on(agent: FakeAgent, place: Place) -> None:
    conversation = await agent.create_conversation(place)
    await agent.prompt(place, conversation, Prompt("p1", "say one two three"))
    whole = await read(agent, place, conversation, "p1")
    agent.inject("events", error=AgentDown("gone"), moment="middle", at=2)
    seen: list[AgentEvent] = []
    with pytest.raises(AgentDown):
        async for told in agent.events(place, conversation, "p1", START):
            seen.append(told)
    assert seen == whole[:2]
    seen += [told async for told in agent.events(place, conversation, "p1", seen[-1].cursor)]
    assert seen == whole


async def test_a_call_that_hangs_has_an_end(agent: FakeAgent, place: Place) -> None:
    agent.inject("health", hang=True)
    with pytest.raises(AgentDown):
        await agent.health(place)
    await agent.health(place)
    assert [method for method, _session in agent.calls].count("health") == 2


async def test_its_process_dies_with_a_sandbox_that_sleeps_and_its_sessions_stay(
    agent: FakeAgent, place: Place, service: SessionService
) -> None:
    conversation = await agent.create_conversation(place)
    await service.pause(place.session_id, PausedAs.FILES)
    with pytest.raises(AgentDown):
        await agent.health(place)
    await agent.start(place)
    await agent.resume_conversation(place, conversation)


async def test_another_sandbox_knows_nothing(agent: FakeAgent, place: Place, service: SessionService) -> None:
    conversation = await agent.create_conversation(place)
    await service.destroy(place.session_id)
    with pytest.raises(SessionGone):
        await agent.resume_conversation(place, conversation)
    other = Place(await new(service), service)
    await agent.start(other)
    with pytest.raises(AgentSessionMissing):
        await agent.resume_conversation(other, conversation)


async def test_a_sandbox_that_dies_in_mid_turn_is_told(agent: FakeAgent, place: Place, host: FakeHost) -> None:
    conversation = await agent.create_conversation(place)
    await agent.prompt(place, conversation, Prompt("p1", "wait-for /never"))
    events = agent.events(place, conversation, "p1", START)
    assert (await anext(events)).event.kind is Kind.MESSAGE_CREATE
    await host.driver.kill(place.session_id)
    with pytest.raises(HoldfastError) as failure:
        async for _told in events:
            pass
    assert not isinstance(failure.value, AgentFailed)


async def test_the_agent_forgets_on_demand(agent: FakeAgent, place: Place) -> None:
    conversation = await agent.create_conversation(place)
    agent.world.forget(place.session_id)
    with pytest.raises(AgentSessionMissing):
        await agent.prompt(place, conversation, Prompt("p1", "say hello"))


async def test_turns_go_on_while_nobody_listens(agent: FakeAgent, place: Place, host: FakeHost) -> None:
    conversation = await agent.create_conversation(place)
    await agent.prompt(place, conversation, Prompt("p1", "write /workspace/a one\nwait-for /workspace/go\nsay done"))
    files = host.world.sandboxes[place.session_id].runner
    assert files is not None
    await until(lambda: "/workspace/a" in files.files, "the file is written")
    files.files["/workspace/go"] = b""
    other = FakeAgent(agent.world)
    assert (await read(other, place, conversation, "p1"))[-1].event.data["reason"] == "end_turn"


async def test_a_session_in_error_is_told_as_it_is(agent: FakeAgent, place: Place, host: FakeHost) -> None:
    await host.driver.forget(place.session_id)
    with pytest.raises((SandboxLost, WrongState)):
        await agent.health(place)
