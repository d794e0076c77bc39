"""A turn that ends without its agent's word leaves no agent at work, and none that refuses the next prompt."""

import pytest

from holdfast.errors import AgentDown, AgentFailed, SandboxLost
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/never"


def at_work(site: FakeSite) -> list[str]:
    return [
        prompt
        for home in site.agents._homes.values()
        if home.alive
        for session in home.sessions.values()
        for prompt, turn in session.turns.items()
        if not turn.ended
    ]


async def lose_sight(daemon: ThreadDaemon, site: FakeSite) -> None:
    """The agent works on, and its events cannot be read, however often that is tried."""
    await daemon.wait_for(Kind.TEXT_DELTA)
    for at in range(8):
        daemon.agent.inject("events", error=SandboxLost("cut"), moment="middle", at=at, times=None)
    for home in site.agents._homes.values():
        for session in home.sessions.values():
            for turn in session.turns.values():
                turn.news.send()


async def test_a_turn_that_is_given_up_leaves_nobody_at_work(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say(BUSY, "m1")
        await lose_sight(daemon, site)
        assert (await daemon.ended("m1")).row.stop_reason == "error"
        assert at_work(site) == []
        daemon.agent.release("events")
        assert (await daemon.talk("say two", "m2")).row.answer == "two\n"


async def test_an_abort_in_which_the_agent_is_lost_leaves_nobody_at_work(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say(BUSY, "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        daemon.agent.inject("abort", error=AgentFailed("500"))
        for at in range(8):
            daemon.agent.inject("events", error=SandboxLost("cut"), moment="middle", at=at, times=None)
        await daemon.threads.abort(REF)
        turn = await daemon.ended("m1")
        assert turn.row.stop_reason == "canceled"
        assert at_work(site) == []
        daemon.agent.release("events")
        assert (await daemon.talk("say two", "m2")).row.answer == "two\n"


async def test_what_could_not_be_stopped_is_stopped_before_the_next_prompt(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say(BUSY, "m1")
        for method in ("abort", "stop"):
            daemon.agent.inject(method, error=AgentDown("not reached"))
        await lose_sight(daemon, site)
        assert (await daemon.ended("m1")).row.stop_reason == "error"
        assert len(at_work(site)) == 1
        daemon.agent.release("events")
        assert (await daemon.talk("say two", "m2")).row.answer == "two\n"
        assert at_work(site) == []


async def test_who_does_not_hear_of_the_abort_is_stopped_before_the_next_prompt(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say(BUSY, "m1")
        daemon.agent.inject("abort", error=AgentFailed("500"), times=2)
        daemon.agent.inject("stop", error=AgentDown("not reached"))
        await lose_sight(daemon, site)
        assert (await daemon.ended("m1")).row.stop_reason == "error"
        daemon.agent.release("events")
        turn = await daemon.talk("say two", "m2")
        assert (turn.row.answer, turn.row.attempts) == ("two\n", 1)
        await until(lambda: at_work(site) == [], "nobody at work")


async def test_an_abort_while_one_waits_for_its_end_leaves_that_to_the_next(site: FakeSite) -> None:
    site.agent_seconds = 60.0
    async with site.daemon(abort_seconds=60.0) as daemon:
        await daemon.say(BUSY, "m1")
        for method in ("abort", "stop"):
            daemon.agent.inject(method, error=AgentDown("not reached"))
        await lose_sight(daemon, site)
        assert (await daemon.ended("m1")).row.stop_reason == "error"
        daemon.agent.release("events")
        before = len(daemon.agent.calls)
        daemon.agent.inject("abort", hang=True)
        await daemon.say("say two", "m2")
        await until(lambda: "abort" in [method for method, _ in daemon.agent.calls[before:]], "it waits")
        await daemon.threads.abort(REF)
        assert (await daemon.ended("m2")).row.stop_reason == "canceled"
        assert "stop" not in [method for method, _ in daemon.agent.calls[before:]]  # nobody has waited to the end
        daemon.agent.release("abort")
        assert (await daemon.talk("say three", "m3")).row.answer == "three\n"
        assert at_work(site) == []
    assert len(site.agents.ran) == 2
