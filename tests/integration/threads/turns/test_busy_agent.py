"""An agent in the middle of a turn is left at work, whatever is asked of its thread and whatever changes meanwhile."""

import pytest

from holdfast.agents.base import Abilities, SlashCommand
from holdfast.errors import AgentFailed
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio

BIG, SMALL = Model("acme", "big", (Wire.CHAT,)), Model("acme", "small", (Wire.CHAT,))


async def at_work(daemon: ThreadDaemon) -> str:
    """A turn that goes on when the file ``/go`` is there. The id of its sandbox."""
    daemon.agent.restarts_for_a_new_brief = True
    daemon.agent.slash = [SlashCommand("compact")]
    await daemon.talk("say hello", "m0")
    newest = (await daemon.events())[-1].seq
    await daemon.say("say begun\nwait-for /go\nsay done", "m1")
    await daemon.wait_for(Kind.TEXT_DELTA, after=newest)
    return str((await daemon.threads.get(REF)).row.session_id)


def go(site: FakeSite, session_id: str) -> None:
    runner = site.host.world.sandboxes[session_id].runner
    assert runner is not None
    runner.files["/go"] = b""


async def test_commands_find_the_agent_as_it_is(site: FakeSite) -> None:
    site.models[:] = [BIG, SMALL]
    site.abilities = Abilities(diff=True)
    async with site.daemon() as daemon:
        session = await at_work(daemon)
        await daemon.threads.commands.use_model(REF, "acme/small")
        starts = daemon.agent.calls.count(("start", session))
        found = await daemon.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
        assert (found.how, found.session_id) == ("reused", session)
        assert [one.name for one in (await daemon.threads.commands.commands(REF)).commands] == ["compact"]
        assert (await daemon.threads.commands.diff(REF)).source == "agent"
        assert daemon.agent.calls.count(("start", session)) == starts
        go(site, session)
        turn = await daemon.ended("m1")
        assert (turn.row.stop_reason, str(turn.row.answer).split()) == ("end_turn", ["begun", "done"])
        await daemon.talk("say on", "m2")
        assert daemon.agent.calls.count(("start", session)) == starts + 1, "it takes in the change before the next turn"


async def test_a_recovery_in_mid_turn_keeps_it(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        session = await at_work(daemon)
        await daemon.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
        starts = daemon.agent.calls.count(("start", session))
        (known,) = site.agents.home(session, "default").sessions.values()
        turn, reads = known.running(), daemon.agent.calls.count(("events", session))
        assert turn is not None
        daemon.agent.inject("events", error=AgentFailed("the link was cut"), moment="middle", at=len(turn.log))
        turn.news.send()
        await until(lambda: daemon.agent.calls.count(("events", session)) > reads, "it reads on")
        go(site, session)
        assert (await daemon.ended("m1")).row.stop_reason == "end_turn"
        assert daemon.agent.calls.count(("start", session)) == starts


async def test_the_next_daemon_keeps_it(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        session = await at_work(daemon)
        await daemon.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
    async with site.daemon() as daemon:
        daemon.agent.restarts_for_a_new_brief = True
        await until(lambda: ("events", session) in daemon.agent.calls, "it reads on")
        assert (await daemon.threads.resolve(REF)).how == "reused"
        go(site, session)
        assert (await daemon.ended("m1")).row.stop_reason == "end_turn"
        assert ("start", session) not in daemon.agent.calls
