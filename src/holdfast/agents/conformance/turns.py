"""Tests of a turn, from its prompt to its end."""

import asyncio
from dataclasses import replace

from holdfast.agents.base import START, ConversationId, Prompt
from holdfast.agents.conformance.harness import (
    PATIENCE_SECONDS,
    Harness,
    data_of,
    eventually,
    need,
    need_wish,
    raises,
    reason_of,
    script,
    talk,
    text_of,
)
from holdfast.errors import AgentFailed, AgentSessionMissing
from holdfast.vocabulary.turn_events import Kind, StopReason, ToolState, check


class TurnConformance:
    """Tests of ``prompt``, ``accepted``, ``abort``, and of the events of a turn."""

    async def test_an_answer(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            turn = await one.turn(harness.wishes.say("hello out there"))
            assert reason_of(turn) is StopReason.END_TURN
            assert text_of(turn).strip() == "hello out there"
            kinds = [told.event.kind for told in turn]
            assert kinds[0] is Kind.MESSAGE_CREATE
            assert kinds.count(Kind.TEXT_DELTA) >= 1
            for told in turn:
                check(told.event)
            ids = {told.event.data["message_id"] for told in turn if "message_id" in told.event.data}
            assert len(ids) == 1, f"one answer, one message: {ids}"

    async def test_a_tool_really_runs(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            turn = await one.turn(harness.wishes.run("echo one; echo two"))
            assert reason_of(turn) is StopReason.END_TURN
            updates = data_of(turn, Kind.TOOL_UPDATE)
            assert len({data["tool_id"] for data in updates}) == 1
            states = [ToolState(str(data["state"])) for data in updates]
            order = [ToolState.PENDING, ToolState.RUNNING, ToolState.COMPLETED]
            assert [state for state in order if state in states] == order
            assert states == sorted(states, key=order.index), f"states go forward: {states}"
            if harness.tells_output:
                assert "one\ntwo" in str(updates[-1].get("output"))

    async def test_a_tool_that_fails_is_told(self, harness: Harness) -> None:
        need(harness.tells_output, "this agent does not tell how a tool ended")
        async with talk(harness, fresh=False) as one:
            turn = await one.turn(harness.wishes.run("exit 3"))
            updates = data_of(turn, Kind.TOOL_UPDATE)
            assert updates[-1]["state"] == ToolState.ERROR
            assert updates[-1].get("exit_code") == 3

    async def test_output_of_a_tool_is_told_while_it_runs(self, harness: Harness) -> None:
        need(harness.tells_output_early, "this agent tells the output of a tool only at its end")
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.run("echo early; sleep 60"))
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for told in one.events(prompt_id):
                    if told.event.kind is Kind.TOOL_UPDATE and "early" in str(told.event.data.get("output")):
                        await one.agent.abort(one.place, one.conversation, prompt_id)
            assert reason_of(await one.read(prompt_id)) is StopReason.CANCELED

    async def test_files_that_it_writes_are_there(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            await one.turn(harness.wishes.write(one.path("made.txt"), "by the agent"))
            assert (await harness.read_file(one.place, one.path("made.txt")) or b"").strip() == b"by the agent"

    async def test_a_failure_is_an_end_with_an_error(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            turn = await one.turn(harness.wishes.fail())
            assert reason_of(turn) is StopReason.ERROR
            error = turn[-1].event.data.get("error")
            assert isinstance(error, dict) and error["code"] and error["message"], turn[-1]
            assert reason_of(await one.turn(harness.wishes.say("still here"))) is StopReason.END_TURN

    async def test_noise_does_no_harm(self, harness: Harness) -> None:
        need_wish(harness.wishes.noise())
        async with talk(harness, fresh=False) as one:
            turn = await one.turn(harness.wishes.noise(), harness.wishes.say("after the noise"))
            assert reason_of(turn) is StopReason.END_TURN
            assert "after the noise" in text_of(turn)

    async def test_abort(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.say("begun"), harness.wishes.wait_for(one.path("never")))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            for _ in range(2):
                await one.agent.abort(one.place, one.conversation, prompt_id)
            turn = await one.read(prompt_id)
            assert reason_of(turn) is StopReason.CANCELED
            await one.agent.abort(one.place, one.conversation, prompt_id)
            assert await one.read(prompt_id) == turn
            assert reason_of(await one.turn(harness.wishes.say("and on"))) is StopReason.END_TURN

    async def test_an_abort_of_another_turn_is_none(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            first = await one.prompt(harness.wishes.say("first"))
            await one.read(first)
            second = await one.prompt(harness.wishes.wait_for(one.path("go")), harness.wishes.say("second"))
            await one.agent.abort(one.place, one.conversation, first)
            await one.touch("go")
            assert reason_of(await one.read(second)) is StopReason.END_TURN

    async def test_the_same_prompt_twice_runs_once(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            prompt = Prompt("trn_twice", script(harness.wishes.say("only once")))
            assert not await one.agent.accepted(one.place, one.conversation, prompt.id)
            for _ in range(3):
                await one.agent.prompt(one.place, one.conversation, prompt)
            turn = await one.read(prompt.id)
            await one.another_daemon().agent.prompt(one.place, one.conversation, prompt)
            assert await one.agent.accepted(one.place, one.conversation, prompt.id)
            assert await one.read(prompt.id) == turn
            assert text_of(turn).count("only once") == 1

    async def test_the_same_prompt_at_the_same_time_runs_once(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            prompt = Prompt("trn_many", script(harness.wishes.say("only once")))
            others = [one.another_daemon().agent for _ in range(4)]
            await asyncio.gather(*(agent.prompt(one.place, one.conversation, prompt) for agent in others))
            assert text_of(await one.read(prompt.id)).count("only once") == 1

    async def test_any_text_can_be_an_id(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            for prompt_id in ("../../etc/passwd", "a b/ü\n'\"$(id)", "x" * 300):
                prompt = Prompt(prompt_id, script(harness.wishes.say("fine")))
                await one.agent.prompt(one.place, one.conversation, prompt)
                assert reason_of(await one.read(prompt_id)) is StopReason.END_TURN
                assert await one.agent.accepted(one.place, one.conversation, prompt_id)
            assert not await one.agent.accepted(one.place, one.conversation, "x" * 299)

    async def test_a_long_prompt(self, harness: Harness) -> None:
        async with talk(harness) as one:
            words = "word " * harness.long_words
            turn = await one.turn(harness.wishes.write(one.path("long.txt"), words.strip()))
            assert reason_of(turn) is StopReason.END_TURN
            assert await harness.read_file(one.place, one.path("long.txt")) == words.strip().encode()

    async def test_it_remembers_what_was_said(self, harness: Harness) -> None:
        async with talk(harness) as one:
            await one.turn(harness.wishes.say("the number is 4711"))
            assert "yes" in text_of(await one.turn(harness.wishes.recall("the number is 4711")))
            assert "no" in text_of(await one.turn(harness.wishes.recall("the number is 42")))

    async def test_a_session_that_it_does_not_know_is_missing(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            for name in ("nobody", f"{one.conversation[:-4]}0000", "../sessions"):
                stranger = ConversationId(name)
                await raises(AgentSessionMissing, one.agent.resume_conversation(one.place, stranger))
                await raises(AgentSessionMissing, one.agent.prompt(one.place, stranger, Prompt("p", "say hello")))
            await one.agent.resume_conversation(one.place, one.conversation)

    async def test_events_of_a_prompt_that_was_never_given(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            await raises(AgentFailed, anext(one.events("trn_never")))

    async def test_channels_do_not_know_each_other(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            other = replace(one.place, channel="telegram:123")
            await one.agent.start(other)
            conversation = await one.agent.create_conversation(other)
            await raises(AgentSessionMissing, one.agent.resume_conversation(other, one.conversation))
            busy = await one.prompt(harness.wishes.wait_for(one.path("go")))
            prompt = Prompt("trn_other", script(harness.wishes.say("meanwhile")))
            await one.agent.prompt(other, conversation, prompt)
            async with asyncio.timeout(PATIENCE_SECONDS):
                turn = [told async for told in one.agent.events(other, conversation, prompt.id, START)]
            assert reason_of(turn) is StopReason.END_TURN
            await one.agent.stop(other)
            await one.agent.health(one.place)
            await one.touch("go")

            async def over() -> bool:
                return reason_of(await one.read(busy)) is StopReason.END_TURN

            await eventually(over, "the other channel's turn ends well")
