"""OpenCode's own server in a real container without network, and the demo model behind it."""

import json
import re
from collections.abc import AsyncIterator

import pytest

from holdfast.agents.base import Prompt
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.conformance.harness import reason_of, talk, text_of
from holdfast.agents.supervisor import Supervisor
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.models import channel_tag, placeholder
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.harness import DEMO, OTHER
from support.agents.opencode_harness import OpenCodeHarness, opencode_harness
from support.servers.model_server import Status

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # for all tests the same loop, since they share a sandbox


@pytest.fixture(scope="module")
async def harness(anyio_backend: str) -> AsyncIterator[OpenCodeHarness]:
    async with opencode_harness() as harness:
        yield harness


class TestOpenCode(AgentConformance):
    pass


async def test_what_is_prompted_right_after_a_failure_is_not_lost(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        for number in range(3):
            assert reason_of(await one.turn(harness.wishes.fail())) is StopReason.ERROR
            assert text_of(await one.turn(harness.wishes.say(f"number {number}"))).strip() == f"number {number}"


async def test_what_is_prompted_before_the_end_of_a_turn_comes_after_it(harness: OpenCodeHarness) -> None:
    """OpenCode itself would make it a part of that turn, or lose it where that one fails."""
    async with talk(harness) as one:
        for first in (harness.wishes.say("first"), harness.wishes.fail()):
            early = await one.prompt("sleep 0.5", first)
            late = await one.prompt(harness.wishes.say("second"))
            assert "second" not in text_of(await one.read(early))
            assert text_of(await one.read(late)).strip() == "second"


async def test_retries_of_a_model_are_seen(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        await one.turn(harness.wishes.say("so that it has a title"))
        harness.server.break_("demo", Status(429, {"retry-after-ms": "50"}), times=2)
        turn = await one.turn(harness.wishes.say("at last"))
        assert text_of(turn).strip() == "at last"
        errors = [told.event.data for told in turn if told.event.kind is Kind.ERROR]
        assert [(data["code"], data["attempt"]) for data in errors] == [("model_retried", 1), ("model_retried", 2)]


async def test_what_the_model_is_asked_with(harness: OpenCodeHarness) -> None:
    """The rules of the house, the model that the prompt names, and no key but the channel's placeholder."""
    async with talk(harness) as one:
        before = len(harness.server.seen)
        for model, name in ((OTHER.id, OTHER.name), (None, DEMO.name)):
            prompt = Prompt(f"trn_{name}", "model", model=model)
            await one.agent.prompt(one.place, one.conversation, prompt)
            assert text_of(await one.read(prompt.id)).strip() == name
        asked = [seen for seen in harness.server.seen[before:] if json.loads(seen.body).get("tools")]
        assert len(asked) == 2
        assert all(b"Be brief." in seen.body for seen in asked)
        assert {seen.key for seen in asked} == {placeholder(channel_tag(one.place.channel))}


async def test_an_error_of_the_provider_tells_its_status(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        turn = await one.turn("fail unauthorized no such key")
        assert reason_of(turn) is StopReason.ERROR
        error = turn[-1].event.data["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["status"]) == ("model_error", 401)
        assert "no such key" in error["message"]


async def test_diff(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        await harness.write_file(one.place, one.path("old.txt"), b"before\n")
        await one.turn(harness.wishes.say("nothing to see"))
        prompt_id = await one.prompt(
            harness.wishes.run(f"echo after > {one.path('old.txt')}; echo made > {one.path('new.txt')}")
        )
        turn = await one.read(prompt_id)
        changed = [told.event.data["paths"] for told in turn if told.event.kind is Kind.FILES_CHANGED]
        assert changed == [[one.path("new.txt"), one.path("old.txt")]]
        diff = await one.agent.diff(one.place, one.conversation, prompt_id)
        assert [line for line in diff.splitlines() if re.match(r"[+-]\w", line)] == ["+made", "-before", "+after"]


async def test_a_slash_command_is_a_turn(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        commands = {
            command.name: command.description for command in await one.agent.commands(one.place, one.conversation)
        }
        assert commands["greet"] == "Greets"
        assert "review" in commands
        for number, (text, answer) in enumerate((("/greet the world", "hello the world"), ("/nothing", "demo model"))):
            prompt = Prompt(f"trn_{number}", text)
            for _ in range(2):
                await one.agent.prompt(one.place, one.conversation, prompt)
            turn = await one.read(prompt.id)
            assert reason_of(turn) is StopReason.END_TURN
            assert text_of(turn).count(answer) == 1
        assert "yes" in text_of(await one.turn(harness.wishes.recall("hello the world")))


async def test_nothing_of_it_is_among_the_users_files_or_in_his_environment(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        turn = await one.turn(harness.wishes.run("env"))
        output = str([told.event.data for told in turn if told.event.kind is Kind.TOOL_UPDATE][-1]["output"])
        env = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert env["OPENCODE_SERVER_PASSWORD"] == env["OPENCODE_CONFIG_CONTENT"] == ""
        assert ".holdfast-agents" not in env["XDG_CONFIG_HOME"]
        entries, _ = await one.place.sandbox.files.list(one.place.session_id, Search("/workspace"))
        names = {entry.path.rpartition("/")[2] for entry in entries}
        assert names == {".opencode", *(name for name in names if re.fullmatch("t[0-9]+", name))}
        home = await Supervisor("opencode").directory(one.place)
        secret = await one.place.sandbox.files.stat(one.place.session_id, f"{home}/password", follow=False)
        assert secret.mode & 0o777 == 0o600


async def test_the_model_may_go_on_when_a_tool_was_denied(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        turn = await one.turn(harness.wishes.run("echo never-ever"), harness.wishes.say("without it"))
        tools = [told.event.data for told in turn if told.event.kind is Kind.TOOL_UPDATE]
        assert (tools[-1]["state"], "denied" in str(tools[-1]["output"])) == ("error", True)
        assert text_of(turn).strip() == "without it"
        assert reason_of(turn) is StopReason.END_TURN
