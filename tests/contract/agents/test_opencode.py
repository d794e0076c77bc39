"""OpenCode's own server in a real container without network, and the demo model behind it."""

import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.agents.base import Prompt, Told
from holdfast.agents.conformance import AgentConformance
from holdfast.agents.conformance.harness import Talk, reason_of, talk, text_of
from holdfast.agents.permissions import parse
from holdfast.agents.supervisor import AGENT_BIN, Supervisor
from holdfast.drivers.base import Driver
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.errors import AgentDown, RuntimeUnavailable
from holdfast.images.store import ImageStore
from holdfast.protocol.turn_events import Kind, StopReason
from holdfast.sessions.file_types import Search
from support.daemon import unmount_below
from support.model_server import Status
from support.opencode_harness import FRESH, OpenCodeHarness, World, opencode_world

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path(AGENT_BIN, "opencode").exists(), reason="OpenCode is not installed"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    try:
        yield root
    finally:
        unmount_below(root)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
async def driver(root: Path, anyio_backend: str) -> AsyncIterator[Driver]:
    state_dir = root / "s"
    state_dir.mkdir(0o711, exist_ok=True)
    driver = OciDriver(state_dir, runtime="runc")
    try:
        await driver.prepare()
    except RuntimeUnavailable as reason:
        raise SkipTest(f"runc: {reason}") from None
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture(scope="module")
async def world(root: Path, driver: Driver) -> AsyncIterator[World]:
    images = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    async with opencode_world(root, driver, images) as world:
        yield world


@pytest.fixture
async def harness(world: World, request: pytest.FixtureRequest) -> AsyncIterator[OpenCodeHarness]:
    harness = OpenCodeHarness(world)
    if request.node.name in FRESH:
        await Supervisor("opencode").stop(await world.place())
    try:
        yield harness
    finally:
        await harness.close()


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
        for first in (harness.wishes.run("sleep 0.5; echo first"), harness.wishes.fail()):
            early = await one.prompt(first)
            late = await one.prompt(harness.wishes.say("second"))
            assert "second" not in text_of(await one.read(early))
            assert text_of(await one.read(late)).strip() == "second"


async def test_retries_of_a_model_are_seen(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        await one.turn(harness.wishes.say("so that it has a title"))
        harness.world.models.break_("demo", Status(429, {"retry-after-ms": "50"}), times=2)
        turn = await one.turn(harness.wishes.say("at last"))
        assert text_of(turn).strip() == "at last"
        errors = [told.event.data for told in turn if told.event.kind is Kind.ERROR]
        assert [(data["code"], data["attempt"]) for data in errors] == [("model_retried", 1), ("model_retried", 2)]


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
        diff = await one.agent.diff(one.place, one.session, prompt_id)
        assert [line for line in diff.splitlines() if re.match(r"[+-]\w", line)] == ["+made", "-before", "+after"]


async def test_a_slash_command_is_a_turn(harness: OpenCodeHarness) -> None:
    async with talk(harness) as one:
        commands = {command.name: command.description for command in await one.agent.commands(one.place, one.session)}
        assert commands["greet"] == "Greets"
        assert "review" in commands
        for number, (text, answer) in enumerate((("/greet the world", "hello the world"), ("/nothing", "demo model"))):
            prompt = Prompt(f"trn_{number}", text)
            for _ in range(2):
                await one.agent.prompt(one.place, one.session, prompt)
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
        assert names == {".git", ".opencode", *(name for name in names if re.fullmatch("[0-9a-f]{8}", name))}
        home = await Supervisor("opencode").directory(one.place)
        secret = await one.place.sandbox.files.stat(one.place.session_id, f"{home}/password", follow=False)
        assert secret.mode & 0o777 == 0o600


async def test_permissions(harness: OpenCodeHarness) -> None:
    """In a channel of its own: the rules are part of what an agent is started with."""
    async with talk(harness) as one:
        rules = parse(["deny bash:echo never*", "ask bash:echo maybe*"])
        place = replace(one.place, channel="strict", brief=replace(one.place.brief, permissions=rules))
        await one.agent.start(place)
        try:
            with pytest.raises(AgentDown, match="has changed"):
                await one.agent.health(replace(place, brief=one.place.brief))
            strict = Talk(harness, one.agent, place, await one.agent.create_session(place))
            await _check_permissions(strict)
        finally:
            await one.agent.stop(place)


async def _check_permissions(one: Talk) -> None:
    wishes = one.harness.wishes
    turn = await one.turn(wishes.run("echo always"), wishes.run("echo never"), wishes.say("went on"))
    assert "always\n" in _outputs(turn)
    assert "never\n" not in _outputs(turn)
    assert Kind.QUESTION not in [told.event.kind for told in turn]
    assert "went on" in text_of(turn)
    for answer, runs in (("deny", False), ("allow", True)):
        prompt_id = await one.prompt(wishes.run("echo maybe"), wishes.say("went on"))
        question = (await one.read_until(prompt_id, Kind.QUESTION)).event.data
        assert "echo maybe" in str(question["text"])
        await one.another_daemon().agent.answer(one.place, one.session, str(question["question_id"]), answer)
        turn = await one.read(prompt_id)
        assert ("maybe\n" in _outputs(turn)) == runs
        closed = [told.event.data["answer"] for told in turn if told.event.kind is Kind.QUESTION_CLOSED]
        assert closed == [answer]
        assert "went on" in text_of(turn)


def _outputs(turn: Sequence[Told]) -> list[object]:
    return [told.event.data.get("output") for told in turn if told.event.kind is Kind.TOOL_UPDATE]
