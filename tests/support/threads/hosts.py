"""Hosts that share a database: each a machine of its own, with sandboxes that only its daemon can reach."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from holdfast.agents.fake.agent import FakeAgent
from holdfast.agents.fake.world import FakeAgentWorld
from holdfast.store import Store
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools
from support.fake_host import DEFAULTS, FakeHost
from support.threads.threads import QUICK, ThreadDaemon, registry


class Host:
    """A machine of its own; ``daemon`` runs on it. ``shared`` is where hosts keep their snapshots for each other."""

    def __init__(self, name: str, root: Path, url: str, shared: Path | None = None) -> None:
        self.name = name
        self.root = root
        self.url = url
        self.shared = shared
        root.mkdir(exist_ok=True)

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        self.store = await Store.open(self.url)
        self.host = FakeHost(self.root, self.store, node=self.name, shared=self.shared)
        self.agents = FakeAgentWorld(self.host.world)
        try:
            yield
        finally:
            await self.host.world.close()
            await self.store.close()

    @contextlib.asynccontextmanager
    async def daemon(self, settings: ThreadSettings = QUICK) -> AsyncIterator[ThreadDaemon]:
        async with self.host.daemon(replace(DEFAULTS, max_sessions=1000)) as sessions:
            agent = FakeAgent(self.agents, deadline_seconds=10.0)
            tools = Tools(
                store=self.store,
                sessions=sessions,
                agents=registry(agent),
                settings=settings,
                metrics=ThreadMetrics(self.host.registry),
                node=self.name,
                clock=self.host.clock,
            )
            books = ThreadBooks(self.store, settings.agents, clock=self.host.clock)
            threads = ThreadService(tools, self.root.parent / "files", books=books)
            async with threads.running():
                yield ThreadDaemon(threads, sessions, agent, self.host.driver, tools, books)


def sandboxes(*hosts: Host) -> list[str]:
    return [name for host in hosts for name in host.host.world.sandboxes]


def ran(*hosts: Host) -> list[str]:
    return [prompt for host in hosts for _session, prompt in host.agents.ran]
