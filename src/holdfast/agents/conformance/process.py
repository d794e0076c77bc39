"""Tests of the agent's process."""

import asyncio
from dataclasses import replace

from holdfast.agents.conformance.harness import Harness, raises, reason_of, talk
from holdfast.errors import AgentDown
from holdfast.vocabulary.turn_events import Kind, StopReason

HEALTH_SECONDS = 8.0
"""Five, and the way there and back on a busy machine."""


class ProcessConformance:
    """Tests of ``start``, ``health`` and ``stop``."""

    async def test_start_and_stop_may_be_repeated(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.wait_for(one.path("go")), harness.wishes.say("still here"))
            for daemon in (one, one.another_daemon()):
                await asyncio.gather(*(daemon.agent.start(one.place) for _ in range(3)))
            await one.touch("go")
            assert reason_of(await one.read(prompt_id)) is StopReason.END_TURN  # the same process all the time
            for _ in range(2):
                await one.agent.stop(one.place)
                await raises(AgentDown, one.agent.health(one.place))
            await one.agent.start(one.place)
            await one.agent.resume_conversation(one.place, one.conversation)

    async def test_stop_in_mid_turn_is_told(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.say("begun"), harness.wishes.wait_for(one.path("never")))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            await one.agent.stop(one.place)
            try:
                turn = await one.read(prompt_id)
            except AgentDown:
                return
            assert reason_of(turn) in (StopReason.CANCELED, StopReason.ERROR)  # it took its leave

    async def test_nothing_is_healthy_before_it_is_started(self, harness: Harness) -> None:
        """This test stands after one that leaves no agent, and before one that needs it, to save a start."""
        place, agent = await harness.new_session(), harness.make_agent()
        await agent.stop(place)  # of an earlier test, where agents are left running
        await raises(AgentDown, agent.health(place))
        await agent.stop(place)
        await agent.start(place)
        await agent.health(place)
        if not harness.leaves_running:
            await agent.stop(place)

    async def test_one_that_hangs_is_found_out_and_replaced(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.hangs(harness.wishes.say("begun"))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            impatient = replace(one, agent=harness.make_impatient_agent())
            loop = asyncio.get_running_loop()
            begun = loop.time()

            async def until_down() -> None:
                while True:  # it may answer for a moment before it hangs
                    await impatient.agent.health(one.place)

            await raises(AgentDown, until_down())
            assert loop.time() - begun < HEALTH_SECONDS + 1, "a hanging agent was waited for too long"
            _seen, error = await impatient.breaks(prompt_id)
            assert isinstance(error, AgentDown), error
            await impatient.agent.start(one.place)
            one = one.another_daemon()
            await one.agent.health(one.place)
            assert reason_of(await one.read(prompt_id)) is StopReason.ERROR
            assert reason_of(await one.turn(harness.wishes.say("and on"))) is StopReason.END_TURN
