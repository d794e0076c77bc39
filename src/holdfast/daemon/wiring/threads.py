"""Building the thread service, for ``wiring``; and which agent threads have that name none."""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from holdfast.agents.known import IMAGE, KNOWN
from holdfast.agents.registry import AgentRegistry
from holdfast.agents.supervisor.launch import AGENT_BIN
from holdfast.broker.git.environment import git_environment
from holdfast.broker.git.hosts import GitSettings
from holdfast.daemon.config.config import Config
from holdfast.drivers.base import Driver
from holdfast.errors import HoldfastError
from holdfast.images.store import ImageStore
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.files.voice import NoTranscriber, Transcriber
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.resolve.briefs import Briefs, ModelSource
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools

log = structlog.get_logger(__name__)

FAVOURITE = "pi"
"""The smallest and quickest of those that ask before they act, and speak every dialect."""
PLAIN = "scripted"
_HOST = "host"
_PATH = "/usr/local/bin:/usr/bin:/bin"


def make_books(config: Config, store: Store, node: str) -> ThreadBooks:
    """Make the books before there are sessions: the broker, which sessions need, asks them who pays."""
    return ThreadBooks(store, thread_settings(config).agents, clock=time.time, node=node)


def make_threads(
    config: Config,
    store: Store,
    sessions: SessionService,
    driver: Driver,
    registry: CollectorRegistry,
    *,
    images: ImageStore,
    node: str,
    books: ThreadBooks | None = None,
    models: ModelSource | None = None,
) -> ThreadService:
    """Make the service; ``models`` are those that the broker serves. Git in sandboxes goes to the broker, too."""
    environment = git_environment(config.section("git", GitSettings))
    tools = Tools(
        store=store,
        sessions=sessions,
        agents=make_agents(config, driver, images),
        settings=thread_settings(config),
        metrics=ThreadMetrics(registry),
        node=node,
        clock=time.time,
        transcriber=make_transcriber(config),
    )
    return ThreadService(
        tools,
        config.thread_files_dir or config.state_dir / "thread-files",
        books=books,
        briefs=Briefs(tools.settings.agents, models, lambda _account: environment),
    )


def make_transcriber(config: Config) -> Transcriber:
    """Make what transcribes audio. What that needs is looked for when somebody speaks: it is optional."""
    if config.transcription_model is None:
        return NoTranscriber()
    from holdfast.threads.files.whisper import Whisper

    return Whisper(config.transcription_model)


def make_agents(config: Config, driver: Driver, images: ImageStore | None = None) -> AgentRegistry:
    """Offer the agents that the configuration names; sandboxes of the fake driver have only its fake agent."""
    if driver.name == "fake":
        from holdfast.agents.fake.agent import FakeAgent
        from holdfast.agents.fake.world import FakeAgentWorld
        from holdfast.drivers.fake.driver import FakeDriver

        assert isinstance(driver, FakeDriver)
        agents = AgentRegistry([])
        agents.add(FakeAgent(FakeAgentWorld(driver.world)))
        return agents
    default = default_agent(config, images, isolated=driver.capabilities.isolation)
    seconds = {
        "start": config.agent_start_seconds,
        "request": config.agent_request_seconds,
        "health": config.agent_health_seconds,
    }
    named = {name: deadline for name, deadline in seconds.items() if deadline is not None}
    return AgentRegistry(config.agents, default, named)


def thread_settings(config: Config) -> ThreadSettings:
    """Make the section of threads, with what follows from other settings and from this machine."""
    chosen = config.section("threads", ThreadSettings)
    agents_bin = AGENT_BIN if Path(AGENT_BIN).is_dir() else None
    return replace(
        chosen,
        agents=replace(chosen.agents, image=config.default_image, agents_bin=agents_bin),
        agent_memory_mb=agent_memory(config),
        # What surrounds an agent's own deadlines must be longer: one that hangs is ended before it is started anew.
        attempt_seconds=max(20.0, (config.agent_request_seconds or 0) + 5, (config.agent_health_seconds or 0) + 5),
        start_seconds=max(240.0, (config.agent_start_seconds or 0) + 120),
        node_silent_seconds=min(20.0, config.node_grace_seconds / 2),
    )


def agent_memory(config: Config) -> Mapping[str, int]:
    """Return what an agent needs, where that is more than the default of all sandboxes."""
    needed = {name: KNOWN[name].memory_mb for name in config.agents if name in KNOWN}
    return {name: mb for name, mb in needed.items() if mb is not None and mb > config.mem_limit_mb}


def default_agent(config: Config, images: ImageStore | None = None, *, isolated: bool) -> str | None:
    """Choose the agent that is set, or a real one if new sandboxes have it, or the script, which says what it is.

    ``isolated``: whether sandboxes have a port of their own, which is the way to models.
    """
    if config.default_agent is not None:
        return config.default_agent
    if FAVOURITE in config.agents and isolated:
        if is_there(FAVOURITE, config.default_image, images):
            return FAVOURITE
        if PLAIN in config.agents:
            log.warning(
                "agents.default",
                agent=PLAIN,
                meaning="threads that name no agent talk to a script, and not to a model",
                remedy=f"{_remedy(config.default_image)}, and start the daemon again; or set default_agent",
            )
    return PLAIN if PLAIN in config.agents else next(iter(config.agents), None)


def _remedy(image: str) -> str:
    if image == _HOST:
        return f"run `holdfast agents install {FAVOURITE}`"
    return f"have {FAVOURITE} in the image {image}, or set default_image: `holdfast image build {IMAGE}` makes one"


def is_there(agent: str, image: str, images: ImageStore | None) -> bool:
    """Say whether sandboxes of an image have an agent's program, as far as that can be seen from outside."""
    program = KNOWN[agent].program
    if program is None:
        return True
    if image == _HOST:
        return os.access(f"{AGENT_BIN}/{program}", os.X_OK) or shutil.which(program, path=_PATH) is not None
    if images is None:
        return False
    try:
        root = images.root_of(image).layout
    except HoldfastError:  # it is not there yet, or not of this kind
        return False
    return any(os.path.lexists(root / directory / program) for directory in ("usr/local/bin", "usr/bin"))
