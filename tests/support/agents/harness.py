"""Real agents as the conformance suite wants them: in a real sandbox, with the demo model behind the broker's door.

Starting an agent takes seconds, so all tests of one share a sandbox and, where they do not end it, its process. Each
has a conversation and a directory of its own.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import cast
from unittest import SkipTest

from aiohttp import web

from holdfast.agents.base import Agent, Brief, Place
from holdfast.agents.conformance import Harness
from holdfast.agents.conformance.harness import Wishes, talk
from holdfast.agents.conformance.permissions import RULES
from holdfast.agents.permissions import parse
from holdfast.agents.supervisor import Supervisor, Timeouts, breaker, supervisor
from holdfast.broker.door import ModelBroker, Visit
from holdfast.callers.types import ROOT
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.errors import FileMissing, HoldfastError, RuntimeUnavailable
from holdfast.images.store import ImageStore
from holdfast.records.limits import Limits
from holdfast.records.machine import PausedAs
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.models import Model, Wire
from support.agents.installed import need_agent
from support.agents.scripted_harness import SETTINGS, open_service
from support.machine.state_dir import new_state_dir, remove_state_dir
from support.servers.model_server import ModelServer

PATIENCE = Timeouts(start=90, health=5, request=60, quiet=1.0, hung=12)
IMPATIENCE = replace(PATIENCE, health=1.0, quiet=0.5, hung=1.0)
TERM_MS = 1000
"""For agents that are made to hang: five seconds each time would add up."""
NO_PAUSES = (0.0, 0.0, 0.0)
DEMO = Model("demo", "demo-1", tuple(Wire))
OTHER = Model("demo", "demo-2", tuple(Wire))
Make = Callable[[Timeouts], Agent]


class DemoWishes(Wishes):
    """What the demo model can be asked for. What happens to the process, the harness does from outside."""

    def ask(self, question: str, options: Sequence[str]) -> str | None:
        return None  # agents ask for permission only: see the suite's permissions

    def crash(self) -> str | None:
        return None

    def hang(self) -> str | None:
        return None

    def noise(self) -> str | None:
        return None


class AgentHarness(Harness):
    """``make`` makes an adapter with this patience; ``agent`` is its name."""

    wishes = DemoWishes()
    leaves_running = True
    several_sandboxes = False
    long_words = 16_000  # more than a pipe takes at once, less than a command line may have

    patience = PATIENCE

    def __init__(self, service: SessionService, server: ModelServer, make: Make, agent: str) -> None:
        self.service = service
        self.server = server
        self.sessions: list[str] = []
        self._make = make
        self._agent = agent
        self._tests = 0

    def make_agent(self) -> Agent:
        return self._make(self.patience)

    def make_impatient_agent(self) -> Agent:
        return self._make(IMPATIENCE)

    async def new_session(self) -> Place:
        if not self.sessions:
            request = CreateRequest(kept=True)
            self.sessions.append((await self.service.create(request, idempotency_key=None, caller=ROOT)).id)
        self._tests += 1
        place = Place(self.sessions[0], self.service, brief=self.brief())
        await self.service.files.mkdir(place.session_id, self.home(place), parents=True, mode=0o755)
        return place

    def brief(self) -> Brief:
        rules = parse(RULES) if self.make_agent().abilities.permissions else ()
        return Brief(models=(DEMO, OTHER), permissions=rules, system_prompt="Be brief.")

    def home(self, place: Place) -> str:
        return f"/workspace/t{self._tests}"

    async def write_file(self, place: Place, path: str, data: bytes) -> None:
        await self.service.write_file(place.session_id, path, data, mode=None)

    async def read_file(self, place: Place, path: str) -> bytes | None:
        try:
            return (await self.service.read_file(place.session_id, path, max_bytes=None))[0]
        except FileMissing:
            return None

    async def kill_agent(self, place: Place) -> None:
        process_id = await self._signal(place, "KILL")
        assert not (await self.service.processes.get(place.session_id, process_id, wait_ms=10_000)).running

    async def hang_agent(self, place: Place) -> None:
        await self._signal(place, "STOP")

    async def _signal(self, place: Place, name: str) -> str:
        found = await Supervisor(self._agent).find(place)
        assert found is not None and found.view.running
        await self.service.processes.signal(place.session_id, found.view.process_id, name)
        return found.view.process_id

    async def lose_conversations(self, place: Place) -> None:
        """All that the agent itself has kept; what we have noted stays."""
        where = await Supervisor(self._agent).directory(place)
        await self.service.files.remove(place.session_id, f"{where}/home", recursive=True)

    async def sleep_and_wake(self, place: Place) -> None:
        await self.service.pause(place.session_id, PausedAs.FILES)
        await self.service.wake(place.session_id)

    @contextlib.asynccontextmanager
    async def ended(self) -> AsyncIterator[None]:
        """Around all tests: its sandbox is destroyed after them. Nobody waits before an agent that was killed is
        started again; ``test_supervisor.py`` is about such pauses."""
        usual, supervisor.TERM_MS = supervisor.TERM_MS, TERM_MS
        pauses, breaker.PAUSES = breaker.PAUSES, NO_PAUSES
        try:
            yield
        finally:
            supervisor.TERM_MS, breaker.PAUSES = usual, pauses
            for session_id in self.sessions:
                with contextlib.suppress(HoldfastError):
                    await self.service.destroy(session_id)


async def traces(harness: Harness) -> list[str]:
    """What an agent has put among the user's own files without being asked to, after a turn."""
    async with talk(harness, fresh=False) as one:
        await one.turn(harness.wishes.say("hello"))
        entries, _ = await one.place.sandbox.files.list(one.place.session_id, Search("/workspace", hidden=True))
        return [entry.path for entry in entries if "/t" not in entry.path.removeprefix("/workspace")]


@contextlib.asynccontextmanager
async def open_agents(program: str, memory_mb: int = 768) -> AsyncIterator[tuple[SessionService, ModelServer]]:
    """A session service whose sandboxes have the agents, and the demo model. Skips where the program is not here."""
    need_agent(program)
    root = new_state_dir()
    (root / "s").mkdir(0o711)
    driver = OciDriver(root / "s", runtime="runc")
    server, broker = ModelServer(), ModelBroker()

    async def answer(visit: Visit) -> web.StreamResponse:
        return await server.handle(cast(web.Request, visit.request))

    broker.serve("llm", answer)
    try:
        await driver.prepare()
    except RuntimeUnavailable as reason:
        raise SkipTest(f"runc: {reason}") from None
    images = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    limits = Limits(cpus=2, memory_mb=memory_mb, pids=512, disk_mb=1024)
    settings = replace(SETTINGS, default_image="host", default_limits=limits, ttl_seconds=3600)
    try:
        async with open_service(root, driver, images, settings, way_out=broker) as service:
            yield service, server
    finally:
        server.end()
        await broker.close()
        await driver.close()
        remove_state_dir(root)


@contextlib.asynccontextmanager
async def real_agent(make: Make, agent: str, program: str, memory_mb: int = 768) -> AsyncIterator[AgentHarness]:
    """For a fixture of module scope."""
    async with open_agents(program, memory_mb) as (service, server):
        harness = AgentHarness(service, server, make, agent)
        async with harness.ended():
            yield harness
