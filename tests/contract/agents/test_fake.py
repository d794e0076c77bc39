"""The fake agent keeps the contract too: tests that stand on it stand on something real."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agents.base import Agent, Place
from holdfast.agents.conformance import AgentConformance, Harness
from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.errors import FileMissing
from holdfast.records.machine import PausedAs
from holdfast.sessions.service import SessionService
from support.fake_host import FakeHost, new, open_host

pytestmark = pytest.mark.anyio


class FakeHarness(Harness):
    sees_images = False

    def __init__(self, host: FakeHost, service: SessionService) -> None:
        self._world = FakeAgentWorld(host.world)
        self._service = service

    def make_agent(self) -> Agent:
        return FakeAgent(self._world, deadline_seconds=2.0)

    def make_impatient_agent(self) -> Agent:
        return FakeAgent(self._world, deadline_seconds=0.5)

    async def new_session(self) -> Place:
        return Place(await new(self._service), self._service)

    def home(self, place: Place) -> str:
        return "/workspace"

    async def write_file(self, place: Place, path: str, data: bytes) -> None:
        await self._service.write_file(place.session_id, path, data, mode=None)

    async def read_file(self, place: Place, path: str) -> bytes | None:
        try:
            return (await self._service.read_file(place.session_id, path, max_bytes=None))[0]
        except FileMissing:
            return None

    async def kill_agent(self, place: Place) -> None:
        self._world.kill(place.session_id, place.channel)

    async def lose_conversations(self, place: Place) -> None:
        self._world.forget(place.session_id, place.channel)

    async def sleep_and_wake(self, place: Place) -> None:
        await self._service.pause(place.session_id, PausedAs.FILES)
        await self._service.wake(place.session_id)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_host(tmp_path) as host, host.daemon() as service:
        yield FakeHarness(host, service)


class TestFakeAgent(AgentConformance):
    pass
