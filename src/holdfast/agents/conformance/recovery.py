"""Tests of recovery: of the agent, its sandbox, its memory, and its readers."""

import asyncio

from holdfast.agents.base import ConversationId, PastMessage, Prompt
from holdfast.agents.conformance.harness import Harness, eventually, need, raises, reason_of, script, talk, text_of
from holdfast.errors import AgentDown, AgentSessionMissing
from holdfast.vocabulary.turn_events import Kind, StopReason


class RecoveryConformance:
    """A conversation survives the process and the sandbox; a death is reported at once."""

    async def test_a_conversation_outlives_the_agents_process(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.say("the number is 4711"))
            turn = await one.read(prompt_id)
            await harness.kill_agent(one.place)
            await raises(AgentDown, one.agent.health(one.place))
            assert await one.agent.accepted(one.place, one.conversation, prompt_id)
            assert not await one.agent.accepted(one.place, one.conversation, "trn_never")
            await one.agent.start(one.place)
            await one.agent.resume_conversation(one.place, one.conversation)
            assert await one.read(prompt_id) == turn
            assert "yes" in text_of(await one.turn(harness.wishes.recall("the number is 4711")))

    async def test_a_conversation_outlives_a_sleep_of_the_sandbox(self, harness: Harness) -> None:
        need(harness.can_sleep, "these sandboxes cannot be stopped and started")
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.say("the number is 4711"))
            turn = await one.read(prompt_id)
            await harness.sleep_and_wake(one.place)
            await raises(AgentDown, one.agent.health(one.place))
            other = one.another_daemon()
            await other.agent.start(one.place)
            await other.agent.resume_conversation(one.place, one.conversation)
            if harness.replays:
                assert await other.read(prompt_id) == turn
            else:  # whoever had stored all but the end is told of one
                rest = await other.read(prompt_id, turn[-2].cursor)
                assert reason_of(rest) in (StopReason.ERROR, StopReason.END_TURN)
            assert "yes" in text_of(await other.turn(harness.wishes.recall("the number is 4711")))

    async def test_a_crash_in_mid_turn_is_told(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.dies(harness.wishes.say("before the crash"))
            seen, error = await one.breaks(prompt_id)
            assert isinstance(error, AgentDown), error
            assert "before the crash" in text_of(seen)
            await one.agent.start(one.place)
            rest = await one.read(prompt_id, seen[-1].cursor)
            assert reason_of(rest) in (StopReason.ERROR, StopReason.END_TURN)
            assert await one.read(prompt_id) == [*seen, *rest]
            assert reason_of(await one.turn(harness.wishes.say("and on"))) is StopReason.END_TURN

    async def test_a_reader_is_told_of_the_agents_death_at_once(self, harness: Harness) -> None:
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.say("begun"), harness.wishes.wait_for(one.path("never")))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            reading = asyncio.ensure_future(one.breaks(prompt_id))
            await harness.kill_agent(one.place)
            _seen, error = await reading
            assert isinstance(error, AgentDown), error

    async def test_it_goes_on_while_nobody_reads(self, harness: Harness) -> None:
        """This test stands here because the one before leaves no agent: one that need not ask must be started anew."""
        async with talk(harness, free=True) as one:
            prompt_id = await one.prompt(harness.wishes.write(one.path("done"), "yes"), harness.wishes.say("done"))

            async def is_done() -> bool:
                return await harness.read_file(one.place, one.path("done")) is not None

            await eventually(is_done, "the agent wrote its file")
            assert reason_of(await one.another_daemon().read(prompt_id)) is StopReason.END_TURN

    async def test_a_prompt_is_not_run_again_after_a_crash(self, harness: Harness) -> None:
        async with talk(harness) as one:
            path = one.path("runs")
            prompt = Prompt("trn_crash", script(harness.wishes.write(path, "first")))
            await one.dies(harness.wishes.write(path, "first"), prompt_id=prompt.id)
            await one.breaks(prompt.id)
            await harness.write_file(one.place, path, b"untouched")
            await one.agent.prompt(one.place, one.conversation, prompt)  # accepted before, with or without its process
            await one.agent.start(one.place)
            await one.agent.prompt(one.place, one.conversation, prompt)
            await one.read(prompt.id)
            assert await harness.read_file(one.place, path) == b"untouched"

    async def test_nothing_is_accepted_by_an_agent_that_is_not_there(self, harness: Harness) -> None:
        async with talk(harness) as one:
            await harness.kill_agent(one.place)
            prompt = Prompt("trn_down", script(harness.wishes.say("hello")))
            await raises(AgentDown, one.agent.prompt(one.place, one.conversation, prompt))
            assert not await one.agent.accepted(one.place, one.conversation, prompt.id)
            await one.agent.start(one.place)
            await one.agent.prompt(one.place, one.conversation, prompt)
            assert reason_of(await one.read(prompt.id)) is StopReason.END_TURN

    async def test_a_lost_conversation_is_missing_and_history_makes_up_for_it(self, harness: Harness) -> None:
        async with talk(harness) as one:
            await one.turn(harness.wishes.say("the number is 4711"))
            await harness.kill_agent(one.place)
            await harness.lose_conversations(one.place)
            for conversation in (one.conversation, ConversationId("of-nobody")):  # the process comes first
                await raises(AgentDown, one.agent.resume_conversation(one.place, conversation))
            await raises(AgentDown, one.agent.create_conversation(one.place))
            await one.agent.start(one.place)
            await raises(AgentSessionMissing, one.agent.resume_conversation(one.place, one.conversation))
            await raises(AgentSessionMissing, one.agent.prompt(one.place, one.conversation, Prompt("p", "say hello")))
            await raises(AgentSessionMissing, one.agent.accepted(one.place, one.conversation, "p"))
            history = [PastMessage("user", "remember 4711"), PastMessage("agent", "the number is 4711")]
            one.conversation = await one.agent.create_conversation(one.place, history)
            assert "yes" in text_of(await one.turn(harness.wishes.recall("remember 4711")))
            assert "yes" in text_of(await one.turn(harness.wishes.recall("the number is 4711")))

    async def test_another_sandbox_does_not_know_the_conversation(self, harness: Harness) -> None:
        need(harness.several_sandboxes, "all tests of this agent share one sandbox; channels tell the same")
        async with talk(harness) as one, talk(harness) as other:
            await raises(AgentSessionMissing, other.agent.resume_conversation(other.place, one.conversation))
