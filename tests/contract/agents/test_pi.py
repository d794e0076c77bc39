"""Pi by its RPC mode, in a real sandbox, against the demo model."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.agents.base import Prompt
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.conformance.harness import raises, reason_of, talk, text_of
from holdfast.agents.pi.adapter import PiAgent
from holdfast.errors import AgentDown, AgentFailed
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.harness import AgentHarness, real_agent

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[AgentHarness]:
    async with real_agent(PiAgent, "pi", "pi") as harness:
        harness.replays = True
        harness.long_words = 25_000
        yield harness


class TestPi(AgentConformance):
    async def test_another_model_for_one_prompt(self, harness: AgentHarness) -> None:
        async with talk(harness) as one:
            for number, (wanted, name) in enumerate([("demo/demo-2", "demo-2"), (None, "demo-1")]):
                prompt = Prompt(f"trn_{number}", "model", model=wanted)
                await one.agent.prompt(one.place, one.conversation, prompt)
                assert text_of(await one.read(prompt.id)).strip() == name
            unknown = one.agent.prompt(one.place, one.conversation, Prompt("trn_x", "model", model="demo/nobody"))
            assert "demo/demo-2" in (await raises(AgentFailed, unknown)).message
            assert not await one.agent.accepted(one.place, one.conversation, "trn_x")

    async def test_a_command_of_an_extension_is_a_prompt_like_others(self, harness: AgentHarness) -> None:
        """Pi would do it without any turn, and the turn would never end."""
        async with talk(harness) as one:
            assert reason_of(await one.turn("/llama list")) is StopReason.END_TURN

    async def test_commands_of_the_repository(self, harness: AgentHarness) -> None:
        async with talk(harness) as one:
            file = b"---\ndescription: Greets.\n---\nsay hello $1\n"
            await harness.write_file(one.place, "/workspace/.pi/prompts/greet.md", file)
            try:
                commands = await one.agent.commands(one.place, one.conversation)
                assert [(command.name, command.description) for command in commands] == [("greet", "Greets.")]
                assert text_of(await one.turn("/greet you")).strip() == "hello you"
            finally:
                await harness.service.files.remove(one.place.session_id, "/workspace/.pi", recursive=True)

    async def test_what_it_was_started_with_has_changed(self, harness: AgentHarness) -> None:
        async with talk(harness) as one:
            await one.turn("say hello")
            place = replace(one.place, brief=replace(one.place.brief, system_prompt="Be very brief."))
            assert (
                "changed" in (await raises(AgentDown, one.agent.resume_conversation(place, one.conversation))).message
            )
            await one.agent.start(place)
            await one.agent.resume_conversation(place, one.conversation)
            one.place = place
            assert text_of(await one.turn("recall hello")).strip() == "yes"

    async def test_its_files_are_nobody_elses(self, harness: AgentHarness) -> None:
        async with talk(harness) as one:
            turn = await one.turn('run ls -l "$PI_CODING_AGENT_DIR"/models.json; ls -A /workspace')
            output = str([told.event.data for told in turn if told.event.kind is Kind.TOOL_UPDATE][-1]["output"])
            assert output.startswith("-rw------- ")
            assert ".pi" not in output.split()
