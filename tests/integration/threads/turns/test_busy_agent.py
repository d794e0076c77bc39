"""An agent in the middle of a turn is left at work, whatever is asked of its thread and whatever changes meanwhile."""

import pytest

from holdfast.agents.base import Abilities, SlashCommand
from holdfast.errors import AgentFailed
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

BIG, SMALL = Model("acme", "big", (Wire.CHAT,)), Model("acme", "small", (Wire.CHAT,))


async def at_work(desk: Desk) -> str:
    """A turn that goes on when the file ``/go`` is there. The id of its sandbox."""
    desk.agent.restarts_for_a_new_brief = True
    desk.agent.slash = [SlashCommand("compact")]
    await desk.talk("say hello", "m0")
    newest = (await desk.events())[-1].seq
    await desk.say("say begun\nwait-for /go\nsay done", "m1")
    await desk.wait_for(Kind.TEXT_DELTA, after=newest)
    return str((await desk.threads.get(REF)).row.session_id)


def go(street: Street, session_id: str) -> None:
    runner = street.house.world.sandboxes[session_id].runner
    assert runner is not None
    runner.files["/go"] = b""


async def test_commands_find_the_agent_as_it_is(street: Street) -> None:
    street.models[:] = [BIG, SMALL]
    street.abilities = Abilities(diff=True)
    async with street.daemon() as desk:
        session = await at_work(desk)
        await desk.threads.commands.use_model(REF, "acme/small")
        starts = desk.agent.calls.count(("start", session))
        found = await desk.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
        assert (found.how, found.session_id) == ("reused", session)
        assert [one.name for one in (await desk.threads.commands.commands(REF)).commands] == ["compact"]
        assert (await desk.threads.commands.diff(REF)).source == "agent"
        assert desk.agent.calls.count(("start", session)) == starts
        go(street, session)
        turn = await desk.ended("m1")
        assert (turn.row.stop_reason, str(turn.row.answer).split()) == ("end_turn", ["begun", "done"])
        await desk.talk("say on", "m2")
        assert desk.agent.calls.count(("start", session)) == starts + 1, "it takes in the change before the next turn"


async def test_a_recovery_in_mid_turn_keeps_it(street: Street) -> None:
    async with street.daemon() as desk:
        session = await at_work(desk)
        await desk.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
        starts = desk.agent.calls.count(("start", session))
        (known,) = street.agents.home(session, "default").sessions.values()
        turn, reads = known.running(), desk.agent.calls.count(("events", session))
        assert turn is not None
        desk.agent.inject("events", error=AgentFailed("the link was cut"), moment="middle", at=len(turn.log))
        turn.poke()
        await until(lambda: desk.agent.calls.count(("events", session)) > reads, "it reads on")
        go(street, session)
        assert (await desk.ended("m1")).row.stop_reason == "end_turn"
        assert desk.agent.calls.count(("start", session)) == starts


async def test_the_next_daemon_keeps_it(street: Street) -> None:
    async with street.daemon() as desk:
        session = await at_work(desk)
        await desk.threads.resolve(REF, ThreadOptions(system_prompt="be brief"))
    async with street.daemon() as desk:
        desk.agent.restarts_for_a_new_brief = True
        await until(lambda: ("events", session) in desk.agent.calls, "it reads on")
        assert (await desk.threads.resolve(REF)).how == "reused"
        go(street, session)
        assert (await desk.ended("m1")).row.stop_reason == "end_turn"
        assert ("start", session) not in desk.agent.calls
