"""OpenCode as the conformance suite wants it: the real server in a real sandbox, and the demo model behind it.

Starting it takes seconds, so that all tests of a module share one sandbox and one server, each with a conversation
and a directory of its own. A second sandbox is made only for the test that needs one.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.agents.base import Agent, Brief, Place
from holdfast.agents.conformance.harness import Harness, Wishes
from holdfast.agents.opencode.adapter import OpenCodeAgent
from holdfast.agents.supervisor import Patience, Supervisor
from holdfast.broker.demo import MODEL
from holdfast.drivers.base import Driver, Limits
from holdfast.errors import FileMissing, HoldfastError
from holdfast.images.store import ImageStore
from holdfast.link.link import Link
from holdfast.protocol.models import PORT
from holdfast.sessions.network import NetworkPolicy
from holdfast.sessions.processes import ProcessRequest
from holdfast.sessions.service import SessionService
from holdfast.sessions.sleep import PausedAs
from holdfast.sessions.spec import SessionSpec
from support.house import new
from support.model_server import ModelServer, model_server
from support.scripted_harness import SETTINGS, open_service

PATIENCE = Patience(start=90.0, health=4.0, request=60.0, quiet=5.0)
LIMITS = Limits(cpus=2, memory_mb=1536, pids=256, disk_mb=1024)
FRESH = ("test_nothing_is_healthy_before_it_is_started",)
"""Tests that want an agent which is not running yet."""


class OpenCodeWishes(Wishes):
    """The demo model knows most of them; what concerns the process is done from one of its own commands."""

    def crash(self) -> str | None:
        return "run kill -9 $PPID"

    def hang(self) -> str | None:
        return "run kill -STOP $PPID"

    def noise(self) -> str | None:
        return "run echo '{\"turn\": garbage' > /proc/$PPID/fd/1"


class ToModels:
    """The way from sandboxes to the models, for all sessions, whatever their network."""

    def __init__(self, server: ModelServer) -> None:
        self._port = urlsplit(server.url).port
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, _policy: NetworkPolicy, /) -> None: ...

    def environment(self, _policy: NetworkPolicy, /) -> Mapping[str, str]:
        return {}

    async def open(self, link: Link, _spec: SessionSpec, /) -> None:
        await link.call("listen", {"name": "models", "port": PORT}, timeout=20)

    def attach(self, link: Link, _spec: SessionSpec, /) -> None:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        link.take_callers("models", take)

    def detach(self, _session_id: str, /) -> None: ...

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        out_reader, out_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(_carry(reader, out_writer), _carry(out_reader, writer))
        finally:
            out_writer.close()
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


@dataclass
class World:
    """What a module's tests share."""

    service: SessionService
    models: ModelServer
    session_id: str

    async def place(self, session_id: str | None = None) -> Place:
        return Place(session_id or self.session_id, self.service, brief=Brief(models=[MODEL]))


class OpenCodeHarness(Harness):
    """One test's."""

    wishes = OpenCodeWishes()
    leaves_running = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.service = world.service
        self._home = f"/workspace/{secrets.token_hex(4)}"
        self._shared = False
        self._sessions: list[str] = []

    def make_agent(self) -> Agent:
        return OpenCodeAgent(PATIENCE)

    async def new_session(self) -> Place:
        if not self._shared:
            self._shared = True
            place = await self.world.place()
        else:
            place = await self.world.place(await new_sandbox(self.service))
            self._sessions.append(place.session_id)
        await self.service.files.mkdir(place.session_id, self._home, parents=True, mode=None)
        return place

    def home(self, _place: Place) -> str:
        return self._home

    async def write_file(self, place: Place, path: str, data: bytes) -> None:
        await self.service.write_file(place.session_id, path, data, mode=None)

    async def read_file(self, place: Place, path: str) -> bytes | None:
        try:
            return (await self.service.read_file(place.session_id, path, max_bytes=None))[0]
        except FileMissing:
            return None

    async def kill_agent(self, place: Place) -> None:
        found = await Supervisor("opencode").running(place)
        await self.service.processes.signal(place.session_id, found.view.process_id, "KILL")
        view = await self.service.processes.get(place.session_id, found.view.process_id, wait_ms=10_000)
        assert not view.running

    async def lose_sessions(self, place: Place) -> None:
        where = await Supervisor("opencode").directory(place)
        await self.service.files.remove(place.session_id, where, recursive=True)

    async def sleep_and_wake(self, place: Place) -> None:
        await self.service.pause(place.session_id, PausedAs.FILES)
        await self.service.wake(place.session_id)

    async def close(self) -> None:
        for session_id in self._sessions:
            with contextlib.suppress(HoldfastError):
                await self.service.destroy(session_id)


async def new_sandbox(service: SessionService) -> str:
    """With a repository, or no turn could be taken back; and one that has settings for OpenCode itself."""
    session_id = await new(service)
    request = ProcessRequest(cmd="git init -q /workspace")
    started = await service.processes.start(session_id, request, idempotency_key=None)
    done = await service.processes.get(session_id, started.process_id, wait_ms=20_000)
    assert done.exit_code == 0
    folder = "/workspace/.opencode/command"
    await service.files.mkdir(session_id, folder, parents=True, mode=None)
    command = b"---\ndescription: Greets\n---\nsay hello $ARGUMENTS\n"
    await service.write_file(session_id, f"{folder}/greet.md", command, mode=None)
    return session_id


@contextlib.asynccontextmanager
async def opencode_world(root: Path, driver: Driver, images: ImageStore) -> AsyncIterator[World]:
    """All of its sandboxes are destroyed at the end."""
    settings = replace(
        SETTINGS,
        default_image="host",
        default_limits=LIMITS,
        ttl_seconds=3600,
        max_file_bytes=1 << 24,
    )
    async with (
        model_server() as models,
        open_service(root, driver, images, settings, way_out=ToModels(models)) as service,
    ):
        session_id = await new_sandbox(service)
        try:
            yield World(service, models, session_id)
        finally:
            with contextlib.suppress(HoldfastError):
                await service.destroy(session_id)
