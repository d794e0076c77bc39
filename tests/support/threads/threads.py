"""The thread service on a fake machine: real store and links; sandboxes, agents and time that do what the test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.agents.base import Abilities
from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.agents.registry import AgentRegistry
from holdfast.callers.types import ROOT
from holdfast.drivers.fake.driver import FakeDriver
from holdfast.errors import HoldfastError
from holdfast.records.threads import MessageRow, Mode, NewMessage, ThreadEventRow
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.files.voice import NoTranscriber, Transcriber
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.names import ThreadRef
from holdfast.threads.resolve.briefs import Briefs
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools
from holdfast.threads.types import TurnView
from holdfast.vocabulary.models import Model
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import DEFAULTS, NODE, FakeHost
from support.waiting import PATIENCE as PATIENCE
from support.waiting import until

QUICK = ThreadSettings(
    retry_seconds=0.02,
    resolve_seconds=1.0,
    lease_seconds=10.0,
    linger_seconds=0.0,
    poll_seconds=0.1,
    ask_seconds=5.0,
    janitor_seconds=3600,  # tests tick by hand
    heartbeat_seconds=0.1,
    node_silent_seconds=30.0,
    node_grace_seconds=60.0,
    abort_seconds=0.5,
)
STEADY = replace(QUICK, lease_seconds=30.0, resolve_seconds=30.0, ask_seconds=30.0)
"""For faults: on a busy machine, too, nothing but the fault goes wrong."""
REF = ThreadRef(ROOT.owner, "slack:T1:C1:1700000000.1")


def registry(agent: FakeAgent) -> AgentRegistry:
    agents = AgentRegistry([])
    agents.add(agent)
    return agents


class ThreadDaemon:
    """One daemon: its threads, with what the test may do to it."""

    patience = PATIENCE
    """Seconds that a turn may take."""

    def __init__(
        self,
        threads: ThreadService,
        sessions: SessionService,
        agent: FakeAgent,
        driver: FakeDriver,
        tools: Tools,
        books: ThreadBooks,
    ) -> None:
        self.threads = threads
        self.sessions = sessions
        self.agent = agent
        self.driver = driver
        self.tools = tools
        self.books = books
        self.crash = asyncio.Event()

    async def say(
        self,
        text: str,
        id: str | None = None,
        ref: ThreadRef = REF,
        mode: Mode = Mode.QUEUE,
        channel: str = "default",
        attachments: Sequence[str] = (),
    ) -> MessageRow:
        name = id or f"m{abs(hash((text, mode, channel)))}"
        message = NewMessage(name, text, mode=mode, channel=channel, author="ann", attachments=attachments)
        return await self.threads.send(ref, message)

    async def ended(self, message_id: str, ref: ThreadRef = REF, *, seconds: float | None = None) -> TurnView:
        """The turn of a message, when it is over."""
        turns: list[TurnView] = []

        async def over() -> bool:
            message = await self.threads.message(ref, message_id)
            if message.turn_id is not None:
                turns.append(await self.threads.turn(ref, message.turn_id))
            return bool(turns) and turns[-1].row.state == "ended"

        await until(over, f"the turn of {message_id} is over", seconds or self.patience, every=0.02)
        return turns[-1]

    async def talk(
        self, text: str, id: str | None = None, ref: ThreadRef = REF, *, seconds: float | None = None
    ) -> TurnView:
        return await self.ended((await self.say(text, id, ref)).id, ref, seconds=seconds)

    async def events(self, ref: ThreadRef = REF) -> list[ThreadEventRow]:
        found: list[ThreadEventRow] = []
        while (page := await self.threads.events(ref, after=len(found), limit=10_000)).events:
            found += page.events
        return found

    async def wait_for(self, kind: Kind, ref: ThreadRef = REF, after: int = 0) -> ThreadEventRow:
        """The first event of this kind."""
        async with asyncio.timeout(self.patience), contextlib.aclosing(self.threads.follow(ref, after=after)) as events:
            async for event in events:
                if event.kind == kind:
                    return event
        raise AssertionError(f"no {kind}")


def refusals(daemon: ThreadDaemon) -> list[HoldfastError]:
    """What the database says, from now on, to who writes down what an agent tells."""
    found: list[HoldfastError] = []
    real = daemon.tools.store.turns.advance

    async def noted(*args: object, **more: object) -> object:
        try:
            return await real(*args, **more)  # type: ignore[arg-type]  # whatever it was called with
        except HoldfastError as error:
            found.append(error)
            raise

    daemon.tools.store.turns.advance = noted  # type: ignore[method-assign, assignment]  # the same, watched
    return found


class Shelf:
    """Models that are offered to everybody."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models


class FakeSite:
    """What stays when daemons go: one host with its machine, the database, the agents in the sandboxes."""

    def __init__(self, host: FakeHost, store: Store, url: str, root: Path) -> None:
        self.host = host
        self.store = store
        self.url = url
        self.root = root
        self.agents = FakeAgentWorld(host.world)
        self.models: list[Model] = []
        """What the broker offers."""
        self.transcriber: Transcriber = NoTranscriber()
        self.abilities: Abilities | None = None
        """Of the agents of daemons to come."""
        self.agent_seconds = 0.5
        """How long those may take for anything."""
        self.session_settings = DEFAULTS

    @contextlib.asynccontextmanager
    async def daemon(self, settings: ThreadSettings = QUICK, **changes: object) -> AsyncIterator[ThreadDaemon]:
        """From its start to its orderly end."""
        chosen = replace(settings, **changes)  # type: ignore[arg-type]  # its own fields, by name
        async with self.host.daemon(self.session_settings) as sessions:
            agent, driver = self._agent(), self.host.driver
            tools = Tools(
                store=self.store,
                sessions=sessions,
                agents=registry(agent),
                settings=chosen,
                metrics=ThreadMetrics(self.host.registry),
                node=NODE,
                clock=self.host.clock,
                transcriber=self.transcriber,
            )
            books = ThreadBooks(self.store, chosen.agents, clock=self.host.clock)
            briefs = Briefs(chosen.agents, Shelf(self.models))
            threads = ThreadService(tools, self.root / "files", books=books, briefs=briefs)
            async with threads.running():
                yield ThreadDaemon(threads, sessions, agent, driver, tools, books)

    def _agent(self) -> FakeAgent:
        return FakeAgent(self.agents, deadline_seconds=self.agent_seconds, abilities=self.abilities)

    def sandboxes(self) -> list[str]:
        return list(self.host.world.sandboxes)

    def metric(self, name: str, **labels: str) -> float:
        return self.host.registry.get_sample_value(name, labels) or 0.0


def text_of(events: Sequence[ThreadEventRow], turn_id: str | None = None) -> str:
    """What the agent said, from its deltas."""
    return "".join(
        str(event.data["text"])
        for event in events
        if event.kind == Kind.TEXT_DELTA and not event.data.get("thought") and turn_id in (None, event.turn_id)
    )


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """As an upload comes."""
    yield data


@contextlib.asynccontextmanager
async def open_site(root: Path, url: str | None = None) -> AsyncIterator[FakeSite]:
    address = url or f"sqlite:///{root / 'test.db'}"
    store = await Store.open(address)
    host = FakeHost(root, store)
    try:
        yield FakeSite(host, store, address, root)
    finally:
        await host.world.close()
        await store.close()
