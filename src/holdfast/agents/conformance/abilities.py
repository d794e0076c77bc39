"""What an agent can do beyond answering, where it says so; and that it says so where it cannot."""

import secrets

from holdfast.agents.base import Prompt
from holdfast.agents.conformance.harness import Harness, need, raises, reason_of, script, talk, text_of
from holdfast.errors import AgentFailed, AgentUnsupported
from holdfast.protocol.turn_events import Kind, StopReason


class AbilityConformance:
    """steer, revert."""

    async def test_steer(self, harness: Harness) -> None:
        async with talk(harness) as one:
            need(one.agent.abilities.steer, "this agent cannot be steered")
            prompt_id = await one.prompt(harness.wishes.say("begun"), harness.wishes.wait_for(one.path("go")))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            for _ in range(2):
                await one.agent.steer(one.place, one.session, Prompt("stp_1", "to the left"))
            assert await one.agent.accepted(one.place, one.session, "stp_1")
            assert not await one.agent.accepted(one.place, one.session, "stp_2")
            await one.touch("go")
            turn = await one.read(prompt_id)
            assert text_of(turn).count("to the left") == 1
            assert reason_of(turn) is StopReason.END_TURN
            await one.agent.steer(one.place, one.session, Prompt("stp_1", "to the left"))  # long since done
            await raises(AgentFailed, one.agent.steer(one.place, one.session, Prompt("stp_2", "too late")))

    async def test_revert(self, harness: Harness) -> None:
        async with talk(harness) as one:
            need(one.agent.abilities.revert, "this agent cannot take back a turn")
            old, new = one.path("old.txt"), one.path("new.txt")
            await harness.write_file(one.place, old, b"before")
            await one.turn(harness.wishes.say("the number is 1"))
            first = await one.prompt(harness.wishes.write(old, "after"), harness.wishes.say("the number is 2"))
            await one.read(first)
            last = Prompt("trn_last", script(harness.wishes.write(old, "again"), harness.wishes.write(new, "made")))
            await one.agent.prompt(one.place, one.session, last)
            await one.read(last.id)
            for _ in range(2):
                await one.agent.revert(one.place, one.session, first)
            assert await harness.read_file(one.place, old) == b"before"
            assert await harness.read_file(one.place, new) is None
            assert "no" in text_of(await one.turn(harness.wishes.recall("the number is 2")))
            assert "yes" in text_of(await one.turn(harness.wishes.recall("the number is 1")))
            await one.agent.prompt(one.place, one.session, last)  # taken back, and still not to be run again
            assert await harness.read_file(one.place, new) is None

    async def test_a_running_turn_is_not_taken_back(self, harness: Harness) -> None:
        async with talk(harness) as one:
            need(one.agent.abilities.revert, "this agent cannot take back a turn")
            prompt_id = await one.prompt(harness.wishes.wait_for(one.path("go")))
            await raises(AgentFailed, one.agent.revert(one.place, one.session, prompt_id))
            await raises(AgentFailed, one.agent.revert(one.place, one.session, "trn_never"))
            await one.touch("go")
            assert reason_of(await one.read(prompt_id)) is StopReason.END_TURN

    async def test_each_prompt_may_name_a_model(self, harness: Harness) -> None:
        async with talk(harness) as one:
            models = one.place.brief.models
            need(len(models) > 1, "there is only one model")
            for model in (models[1], models[0], models[1]):
                prompt = Prompt(f"trn_{secrets.token_hex(8)}", script(harness.wishes.model()), model=model.id)
                try:
                    await one.agent.prompt(one.place, one.session, prompt)
                except AgentFailed as error:  # it keeps the one that it was started with, and says so
                    assert model != models[0] and model.id in error.message
                    continue
                assert text_of(await one.read(prompt.id)).strip() == model.name
            unknown = Prompt("trn_unknown", script(harness.wishes.model()), model="nobody/nothing")
            await raises(AgentFailed, one.agent.prompt(one.place, one.session, unknown))
            assert not await one.agent.accepted(one.place, one.session, unknown.id)

    async def test_what_it_cannot_do_it_says(self, harness: Harness) -> None:
        async with talk(harness) as one:
            able = one.agent.abilities
            prompt = Prompt("p", "say hello")
            if not able.steer:
                await raises(AgentUnsupported, one.agent.steer(one.place, one.session, prompt))
            if not able.revert:
                await raises(AgentUnsupported, one.agent.revert(one.place, one.session, prompt.id))
