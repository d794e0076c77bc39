"""A thread is given another agent: the former one is stopped, and the new one is told the history."""

import asyncio

import pytest

from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.errors import AgentFailed, WrongState
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio

OTHER = ThreadOptions(agent="other")


class OtherAgent(FakeAgent):
    name = "other"


def offer_another(daemon: ThreadDaemon, site: FakeSite) -> OtherAgent:
    other = OtherAgent(FakeAgentWorld(site.host.world))
    daemon.tools.agents.add(other)
    return other


async def test_the_former_one_is_stopped_in_each_channel(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        other = offer_another(daemon, site)
        await daemon.talk("say the password is kelp", "m1")
        await daemon.say("say hello", "m2", channel="side")
        await daemon.ended("m2")
        session = (await daemon.threads.resolve(REF)).session_id
        homes = [site.agents.home(session, channel) for channel in ("default", "side")]
        assert all(home.alive for home in homes)
        found = await daemon.threads.resolve(REF, OTHER)
        assert (found.session_id, found.thread.row.agent) == (session, "other")
        assert not any(home.alive for home in homes)
        assert other.world.home(session, "default").alive
        assert (await daemon.talk("recall kelp", "m3")).row.answer == "yes\n"


async def test_not_in_the_middle_of_a_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        other = offer_another(daemon, site)
        await daemon.say("wait-for /never", "m1")
        await daemon.wait_for(Kind.STATUS)
        with pytest.raises(WrongState, match="running"):
            await daemon.threads.resolve(REF, OTHER)
        assert (await daemon.threads.get(REF)).row.agent == "fake"
        assert (await daemon.threads.resolve(REF, ThreadOptions(agent="fake"))).how == "reused", "that is no change"
        await daemon.threads.abort(REF)
        assert (await daemon.ended("m1")).row.stop_reason == "canceled"
        await daemon.threads.resolve(REF, OTHER)
        assert (await daemon.talk("say on", "m2")).row.stop_reason == "end_turn"
        assert [method for method, _session in other.calls].count("prompt") == 1


async def test_a_message_in_that_moment_is_for_the_new_one(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        other = offer_another(daemon, site)
        await daemon.talk("say hello", "m1")
        daemon.agent.inject("stop", hang=True)
        changing = asyncio.ensure_future(daemon.threads.resolve(REF, OTHER))
        session = str((await daemon.threads.get(REF)).row.session_id)
        await until(lambda: ("stop", session) in daemon.agent.calls, "the former one is being stopped")
        await daemon.say("say on", "m2")
        daemon.agent.release("stop")
        await changing
        assert (await daemon.ended("m2")).row.stop_reason == "end_turn"
        assert ("prompt", session) in other.calls
        assert not site.agents.home(session, "default").alive


async def test_one_that_cannot_be_ended_is_no_reason_to_keep_it(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        offer_another(daemon, site)
        await daemon.talk("say hello", "m1")
        daemon.agent.inject("stop", error=AgentFailed("it does not end"))
        assert (await daemon.threads.resolve(REF, OTHER)).thread.row.agent == "other"
