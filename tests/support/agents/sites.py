"""Sites whose threads have a real agent in their sandboxes, with the demo model behind the broker's door."""

import contextlib
import importlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from aiohttp import web

from holdfast.agents.base import Agent, Place
from holdfast.agents.known import KNOWN
from holdfast.agents.scripted.adapter import ScriptedTimeouts
from holdfast.agents.supervisor import Supervisor, Timeouts
from holdfast.broker.door import ModelBroker, Visit
from holdfast.records.limits import Limits
from holdfast.sessions.ways_out import WayOut
from holdfast.vocabulary.models import Model, Wire
from support.agents.installed import need_agent
from support.agents.scripted_harness import PATIENCE as SCRIPTED_PATIENCE
from support.fake_host import NODE
from support.machine.machine import runtime
from support.machine.state_dir import open_state_dir
from support.servers.model_server import ModelServer
from support.threads.real_threads import REAL, SESSIONS, RealSite
from support.threads.threads import ThreadDaemon

AGENTS = ("pi", "opencode", "sandbox-agent", "opencode-acp", "codex", "pi-acp", "claude", "gemini")
PATIENCE = Timeouts(start=90, health=5, request=60, quiet=1.0, hung=12)


class AgentSite(RealSite):
    """All of its threads have this agent."""

    settings = replace(REAL, resolve_seconds=90.0)  # on a busy machine, starting some of them takes most of that
    sessions = replace(SESSIONS, default_limits=Limits(cpus=2, memory_mb=1536, pids=512, disk_mb=256))
    models = (Model("demo", "demo-1", tuple(Wire)),)

    def __init__(self, root: Path, agent: str, node: str = NODE, shared: Path | None = None) -> None:
        super().__init__(root, node, shared)
        self.agent = agent

    def make_agent(self, patience: ScriptedTimeouts | Timeouts) -> Agent:
        """The scripted agent's patience is shorter than any of these can be: it only says that less is wanted. One that
        is meant for these is taken as it is."""
        module, _, name = KNOWN[self.agent].adapter.partition(":")
        if not isinstance(patience, Timeouts):
            patience = replace(PATIENCE, hung=PATIENCE.hung if patience.health >= SCRIPTED_PATIENCE.health else 2.0)
        made = getattr(importlib.import_module(module), name)(patience)
        return cast(Agent, made)

    @contextlib.asynccontextmanager
    async def way_out(self) -> AsyncIterator[WayOut | None]:
        server, broker = ModelServer(), ModelBroker()

        async def answer(visit: Visit) -> web.StreamResponse:
            return await server.handle(cast(web.Request, visit.request))

        broker.serve("llm", answer)
        try:
            yield broker
        finally:
            server.end()
            await broker.close()

    async def signal_agent(self, daemon: ThreadDaemon, session_id: str, name: str) -> str:
        found = await Supervisor(self.agent).find(Place(session_id, daemon.sessions))
        assert found is not None and found.view.running
        await daemon.sessions.processes.signal(session_id, found.view.process_id, name)
        return found.view.process_id

    async def lose_agent_sessions(self, daemon: ThreadDaemon, session_id: str) -> None:
        """All that the agent itself has kept; OpenCode's own adapter has no directory of ours beside that."""
        where = await Supervisor(self.agent).directory(Place(session_id, daemon.sessions))
        own = where if self.agent == "opencode" else f"{where}/home"
        await daemon.sessions.files.remove(session_id, own, recursive=True)


def make_site(root: Path, agent: str, node: str = NODE, shared: Path | None = None) -> RealSite:
    """Whose threads have ``scripted``, or one that ships."""
    return RealSite(root, node, shared) if agent == "scripted" else AgentSite(root, agent, node, shared)


@contextlib.contextmanager
def open_agent_site(agent: str, node: str = NODE, shared: Path | None = None) -> Iterator[RealSite]:
    """An agent that ships is skipped where it is not installed."""
    if agent != "scripted":
        need_agent(str(KNOWN[agent].program))
    runtime()  # found out now: later there is an event loop
    with open_state_dir() as root:
        yield make_site(root, agent, node, shared)
