"""The scripted agent as the conformance suite wants it, in real sandboxes of a real session service."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry

from holdfast.agents.base import Agent, Place
from holdfast.agents.conformance import Harness
from holdfast.agents.scripted import process
from holdfast.agents.scripted.adapter import ScriptedAgent, ScriptedTimeouts
from holdfast.agents.supervisor import home
from holdfast.drivers.base import Driver
from holdfast.errors import FileMissing, HoldfastError
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.records.limits import Limits
from holdfast.records.machine import PausedAs
from holdfast.records.network import NetworkPolicy
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.ways_out import WayOut
from holdfast.store import Store
from support.fake_host import DEFAULTS, NODE, Images, new

SETTINGS = replace(
    DEFAULTS,
    default_limits=Limits(cpus=1, memory_mb=256, pids=64, disk_mb=64),
    connect_seconds=30,
    max_exec_timeout_ms=60_000,
)
PATIENCE = ScriptedTimeouts(health=2.5, quiet=0.5)
IMPATIENCE = replace(PATIENCE, health=1.0)


class ScriptedHarness(Harness):
    sees_images = False

    def __init__(self, service: SessionService, *, can_sleep: bool, homes: Path | None) -> None:
        self.service = service
        self.can_sleep = can_sleep
        self.sessions: list[str] = []
        self._homes = homes

    def make_agent(self) -> Agent:
        return ScriptedAgent(PATIENCE)

    def make_impatient_agent(self) -> Agent:
        return ScriptedAgent(IMPATIENCE)

    async def new_session(self) -> Place:
        session_id = await new(self.service)
        self.sessions.append(session_id)
        return Place(session_id, self.service)

    def home(self, place: Place) -> str:
        return "/workspace" if self._homes is None else f"{self._homes}/{place.session_id}/workspace"

    async def write_file(self, place: Place, path: str, data: bytes) -> None:
        await self.service.write_file(place.session_id, path, data, mode=None)

    async def read_file(self, place: Place, path: str) -> bytes | None:
        try:
            return (await self.service.read_file(place.session_id, path, max_bytes=None))[0]
        except FileMissing:
            return None

    async def kill_agent(self, place: Place) -> None:
        view, _generation = await process.find(place)
        assert view is not None and view.running
        await self.service.processes.signal(place.session_id, view.process_id, "KILL")
        assert not (await self.service.processes.get(place.session_id, view.process_id, wait_ms=10_000)).running

    async def lose_conversations(self, place: Place) -> None:
        where = f"{await home.root(place)}/scripted"
        await self.service.files.remove(place.session_id, where, recursive=True)

    async def sleep_and_wake(self, place: Place) -> None:
        await self.service.pause(place.session_id, PausedAs.FILES)
        await self.service.wake(place.session_id)


@contextlib.asynccontextmanager
async def open_service(
    root: Path,
    driver: Driver,
    images: ImageStore | None,
    settings: SessionSettings = SETTINGS,
    *,
    way_out: WayOut | None = None,
) -> AsyncIterator[SessionService]:
    """A service of its own, with links and database below ``root``."""
    store = await Store.open(f"sqlite+aiosqlite:///{root / 'test.db'}")
    service = SessionService(
        store.sessions,
        driver,
        images or cast(ImageStore, Images(root)),
        LinkHub(root / "l"),
        SavedShells(root / "asleep"),
        Kept(store.snapshots, store.workspaces, root),
        settings,
        node=NODE,
        link_key=b"key",
        clock=time.time,
        metrics=SessionMetrics(CollectorRegistry()),
        way_out=way_out,
    )
    try:
        async with service.running():
            yield service
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def scripted_harness(
    root: Path, driver: Driver, images: ImageStore | None, *, homes: Path | None = None, image: str = "empty"
) -> AsyncIterator[ScriptedHarness]:
    """All of its sandboxes are destroyed at the end."""
    network = NetworkPolicy.NONE if homes is None else NetworkPolicy.FULL
    settings = replace(SETTINGS, default_image=image, default_network=network)
    async with open_service(root, driver, images, settings) as service:
        harness = ScriptedHarness(service, can_sleep=driver.capabilities.stop, homes=homes)
        try:
            yield harness
        finally:
            for session_id in harness.sessions:
                with contextlib.suppress(HoldfastError):
                    await service.destroy(session_id)
