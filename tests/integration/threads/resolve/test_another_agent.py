"""A thread is given another agent: the former one is stopped, and the new one is told the history."""

import asyncio

import pytest

from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.errors import AgentFailed, WrongState
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

OTHER = ThreadOptions(agent="other")


class OtherAgent(FakeAgent):
    name = "other"


def offer_another(desk: Desk, street: Street) -> OtherAgent:
    other = OtherAgent(FakeAgentWorld(street.house.world))
    desk.tools.agents.add(other)
    return other


async def test_the_former_one_is_stopped_in_each_channel(street: Street) -> None:
    async with street.daemon() as desk:
        other = offer_another(desk, street)
        await desk.talk("say the password is kelp", "m1")
        await desk.say("say hello", "m2", channel="side")
        await desk.ended("m2")
        session = (await desk.threads.resolve(REF)).session_id
        homes = [street.agents.home(session, channel) for channel in ("default", "side")]
        assert all(home.alive for home in homes)
        found = await desk.threads.resolve(REF, OTHER)
        assert (found.session_id, found.thread.row.agent) == (session, "other")
        assert not any(home.alive for home in homes)
        assert other.world.home(session, "default").alive
        assert (await desk.talk("recall kelp", "m3")).row.answer == "yes\n"


async def test_not_in_the_middle_of_a_turn(street: Street) -> None:
    async with street.daemon() as desk:
        other = offer_another(desk, street)
        await desk.say("wait-for /never", "m1")
        await desk.wait_for(Kind.STATUS)
        with pytest.raises(WrongState, match="running"):
            await desk.threads.resolve(REF, OTHER)
        assert (await desk.threads.get(REF)).row.agent == "fake"
        assert (await desk.threads.resolve(REF, ThreadOptions(agent="fake"))).how == "reused", "that is no change"
        await desk.threads.abort(REF)
        assert (await desk.ended("m1")).row.stop_reason == "canceled"
        await desk.threads.resolve(REF, OTHER)
        assert (await desk.talk("say on", "m2")).row.stop_reason == "end_turn"
        assert [method for method, _session in other.calls].count("prompt") == 1


async def test_a_message_in_that_moment_is_for_the_new_one(street: Street) -> None:
    async with street.daemon() as desk:
        other = offer_another(desk, street)
        await desk.talk("say hello", "m1")
        desk.agent.inject("stop", hang=True)
        changing = asyncio.ensure_future(desk.threads.resolve(REF, OTHER))
        session = str((await desk.threads.get(REF)).row.session_id)
        await until(lambda: ("stop", session) in desk.agent.calls, "the former one is being stopped")
        await desk.say("say on", "m2")
        desk.agent.release("stop")
        await changing
        assert (await desk.ended("m2")).row.stop_reason == "end_turn"
        assert ("prompt", session) in other.calls
        assert not street.agents.home(session, "default").alive


async def test_one_that_cannot_be_ended_is_no_reason_to_keep_it(street: Street) -> None:
    async with street.daemon() as desk:
        offer_another(desk, street)
        await desk.talk("say hello", "m1")
        desk.agent.inject("stop", error=AgentFailed("it does not end"))
        assert (await desk.threads.resolve(REF, OTHER)).thread.row.agent == "other"
