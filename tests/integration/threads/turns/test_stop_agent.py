"""A turn that ends without its agent's word leaves no agent at work, and none that refuses the next prompt."""

import pytest

from holdfast.errors import AgentDown, AgentFailed, SandboxLost
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/never"


def at_work(street: Street) -> list[str]:
    return [
        prompt
        for home in street.agents._homes.values()
        if home.alive
        for session in home.sessions.values()
        for prompt, turn in session.turns.items()
        if not turn.ended
    ]


async def lose_sight(desk: Desk, street: Street) -> None:
    """The agent works on, and its events cannot be read, however often that is tried."""
    await desk.wait_for(Kind.TEXT_DELTA)
    for at in range(8):
        desk.agent.inject("events", error=SandboxLost("cut"), moment="middle", at=at, times=None)
    for home in street.agents._homes.values():
        for session in home.sessions.values():
            for turn in session.turns.values():
                turn.poke()


async def test_a_turn_that_is_given_up_leaves_nobody_at_work(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say(BUSY, "m1")
        await lose_sight(desk, street)
        assert (await desk.ended("m1")).row.stop_reason == "error"
        assert at_work(street) == []
        desk.agent.release("events")
        assert (await desk.talk("say two", "m2")).row.answer == "two\n"


async def test_an_abort_in_which_the_agent_is_lost_leaves_nobody_at_work(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say(BUSY, "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        desk.agent.inject("abort", error=AgentFailed("500"))
        for at in range(8):
            desk.agent.inject("events", error=SandboxLost("cut"), moment="middle", at=at, times=None)
        await desk.threads.abort(REF)
        turn = await desk.ended("m1")
        assert turn.row.stop_reason == "canceled"
        assert at_work(street) == []
        desk.agent.release("events")
        assert (await desk.talk("say two", "m2")).row.answer == "two\n"


async def test_what_could_not_be_stopped_is_stopped_before_the_next_prompt(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say(BUSY, "m1")
        for method in ("abort", "stop"):
            desk.agent.inject(method, error=AgentDown("not reached"))
        await lose_sight(desk, street)
        assert (await desk.ended("m1")).row.stop_reason == "error"
        assert len(at_work(street)) == 1
        desk.agent.release("events")
        assert (await desk.talk("say two", "m2")).row.answer == "two\n"
        assert at_work(street) == []


async def test_who_does_not_hear_of_the_abort_is_stopped_before_the_next_prompt(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say(BUSY, "m1")
        desk.agent.inject("abort", error=AgentFailed("500"), times=2)
        desk.agent.inject("stop", error=AgentDown("not reached"))
        await lose_sight(desk, street)
        assert (await desk.ended("m1")).row.stop_reason == "error"
        desk.agent.release("events")
        turn = await desk.talk("say two", "m2")
        assert (turn.row.answer, turn.row.attempts) == ("two\n", 1)
        await until(lambda: at_work(street) == [], "nobody at work")


async def test_an_abort_while_one_waits_for_its_end_leaves_that_to_the_next(street: Street) -> None:
    street.agent_seconds = 60.0
    async with street.daemon(abort_seconds=60.0) as desk:
        await desk.say(BUSY, "m1")
        for method in ("abort", "stop"):
            desk.agent.inject(method, error=AgentDown("not reached"))
        await lose_sight(desk, street)
        assert (await desk.ended("m1")).row.stop_reason == "error"
        desk.agent.release("events")
        before = len(desk.agent.calls)
        desk.agent.inject("abort", hang=True)
        await desk.say("say two", "m2")
        await until(lambda: "abort" in [method for method, _ in desk.agent.calls[before:]], "it waits")
        await desk.threads.abort(REF)
        assert (await desk.ended("m2")).row.stop_reason == "canceled"
        assert "stop" not in [method for method, _ in desk.agent.calls[before:]]  # nobody has waited to the end
        desk.agent.release("abort")
        assert (await desk.talk("say three", "m3")).row.answer == "three\n"
        assert at_work(street) == []
    assert len(street.agents.ran) == 2
