"""The scripted agent in real containers: with the runtime bundle's Python, whatever the image has."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

import pytest

from holdfast.agents.base import START, AgentEvent, Place, Prompt
from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.conformance.harness import reason_of, talk, text_of
from holdfast.agents.scripted.adapter import ScriptedAgent
from holdfast.drivers.base import Driver
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.errors import RuntimeUnavailable
from holdfast.images.store import ImageStore
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.scripted_harness import SETTINGS, open_service, scripted_harness
from support.fake_host import new
from support.machine.state_dir import open_state_dir

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """One for all tests: making the runtime bundle takes longer than a test."""
    with open_state_dir() as root:
        yield root


@pytest.fixture
async def driver(root: Path) -> AsyncIterator[Driver]:
    state_dir = root / "s"
    state_dir.mkdir(0o711, exist_ok=True)
    driver = OciDriver(state_dir, runtime="runc")
    try:
        await driver.prepare()
    except RuntimeUnavailable as reason:
        raise SkipTest(f"runc: {reason}") from None  # one line for all tests, unlike pytest.skip
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture
def images(root: Path) -> ImageStore:
    return ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)


@pytest.fixture
async def harness(root: Path, driver: Driver, images: ImageStore) -> AsyncIterator[Harness]:
    async with scripted_harness(root, driver, images, image="host") as harness:
        yield harness


class TestScriptedAgent(AgentConformance):
    pass


async def test_an_image_with_nothing_in_it_will_do(
    root: Path, driver: Driver, images: ImageStore, tmp_path: Path
) -> None:
    """Neither Python nor a shell: all comes from the runtime bundle."""
    for name in ("usr", "bin", "etc"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "sh").write_text("not a shell")
    await images.import_("nothing", tmp_path)
    async with scripted_harness(root, driver, images, image="nothing") as harness, talk(harness) as one:
        turn = await one.turn("run for i in 1 2 3; do echo $((i*i)); done")
        assert reason_of(turn) is StopReason.END_TURN
        tools = [told.event.data for told in turn if told.event.kind is Kind.TOOL_UPDATE]
        assert (tools[-1]["output"], tools[-1]["exit_code"]) == ("1\n4\n9\n", 0)


async def test_nothing_of_it_is_among_the_users_files(harness: Harness) -> None:
    async with talk(harness) as one:
        await one.turn("say hello")
        entries, _ = await one.place.sandbox.files.list(one.place.session_id, Search("/workspace", recursive=True))
        assert entries == []


async def test_a_turn_outlives_the_daemon(root: Path, driver: Driver, images: ImageStore) -> None:
    """Not only another adapter: another session service, over the same database, links and sandboxes."""
    settings = replace(SETTINGS, default_image="host")
    async with open_service(root, driver, images, settings) as service:
        place, agent = Place(await new(service), service), ScriptedAgent()
        await agent.start(place)
        conversation = await agent.create_conversation(place)
        await agent.prompt(place, conversation, Prompt("p", "say one\nwait-for /workspace/go\nsay two"))
        seen: list[AgentEvent] = []
        async with aclosing(agent.events(place, conversation, "p", START)) as events:
            while len(seen) < 3:
                seen.append(await anext(events))
    async with open_service(root, driver, images, settings) as service:
        place, agent = Place(place.session_id, service), ScriptedAgent()
        await agent.start(place)  # it runs; nothing happens
        await service.write_file(place.session_id, "/workspace/go", b"", mode=None)
        async with asyncio.timeout(30):
            seen += [told async for told in agent.events(place, conversation, "p", seen[-1].cursor)]
        assert reason_of(seen) is StopReason.END_TURN
        assert text_of(seen) == "one\ntwo\n"
        await service.destroy(place.session_id)
