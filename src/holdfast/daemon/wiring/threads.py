"""Building the thread service, for ``wiring``."""

import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry

from holdfast.agents.known import KNOWN
from holdfast.agents.permissions import parse
from holdfast.agents.registry import AgentRegistry
from holdfast.broker.git.environment import git_environment
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.default_agent import default_agent
from holdfast.daemon.config.git import git_settings
from holdfast.daemon.config.threads import DEFAULT, IdleConfig
from holdfast.drivers.base import Driver
from holdfast.images.store import ImageStore
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.files.voice import NoTranscriber, Transcriber
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.resolve.briefs import Briefs, Catalogue, Environments
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import AgentDefaults, ThreadSettings
from holdfast.threads.tools import Tools
from holdfast.threads.types import IdlePolicy

AGENTS_BIN = Path("/usr/local/lib/holdfast-agents/bin")
"""Where agents are installed on the host; sandboxes of the image ``host`` see them there."""


def make_books(config: Config, store: Store, node: str) -> ThreadBooks:
    """Before there are sessions: the broker, which they need, asks it who pays."""
    return ThreadBooks(store, agent_defaults(config), clock=time.time, node=node)


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
    models: Catalogue | None = None,
) -> ThreadService:
    """``models`` are those that the broker serves."""
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
        briefs=Briefs(tools.settings.agents, models, _environments(config)),
    )


def _environments(config: Config) -> Environments:
    """What git in sandboxes is told: who it is, and to go to the broker, which has the tokens."""
    found = git_environment(git_settings(config.git_credentials, config.git_user_name, config.git_user_email))
    return lambda _account: found


def make_transcriber(config: Config) -> Transcriber:
    """What it needs is looked for when somebody speaks: a daemon without it is a daemon all the same."""
    if config.transcription_model is None:
        return NoTranscriber()
    from holdfast.threads.files.whisper import Whisper

    return Whisper(config.transcription_model)


def make_agents(config: Config, driver: Driver, images: ImageStore | None = None) -> AgentRegistry:
    """Those that the configuration names; in the sandboxes of the fake driver, there is only its fake agent."""
    if driver.name == "fake":
        from holdfast.agents.fake.agent import FakeAgent
        from holdfast.agents.fake.world import FakeAgentWorld
        from holdfast.drivers.fake.driver import FakeDriver

        assert isinstance(driver, FakeDriver)
        agents = AgentRegistry([])
        agents.add(FakeAgent(FakeAgentWorld(driver.world)))
        return agents
    default = default_agent(config, images, isolated=driver.capabilities.isolation)
    return AgentRegistry(config.agents, default, agent_seconds(config))


def agent_seconds(config: Config) -> Mapping[str, float]:
    """Deadlines of agents, where the configuration names some."""
    named = {
        "start": config.agent_start_seconds,
        "request": config.agent_request_seconds,
        "health": config.agent_health_seconds,
    }
    return {name: seconds for name, seconds in named.items() if seconds is not None}


def thread_settings(config: Config) -> ThreadSettings:
    policies = {platform: _policy(idle) for platform, idle in config.thread_idle.items()}
    return ThreadSettings(
        idle=policies.pop(DEFAULT, IdlePolicy()),
        platform_idle=policies,
        agents=agent_defaults(config),
        retry_seconds=config.thread_retry_seconds,
        resolve_seconds=config.thread_resolve_seconds,
        lease_seconds=config.thread_lease_seconds,
        agent_memory_mb=agent_memory(config),
        agent_idle_seconds=config.agent_idle_seconds,
        # What surrounds an agent's own deadlines must be longer: one that hangs is ended before it is started anew.
        attempt_seconds=max(20.0, (config.agent_request_seconds or 0) + 5, (config.agent_health_seconds or 0) + 5),
        start_seconds=max(240.0, (config.agent_start_seconds or 0) + 120),
        turn_seconds=config.turn_seconds,
        question_seconds=config.question_seconds,
        node_silent_seconds=min(20.0, config.node_grace_seconds / 2),
        node_grace_seconds=config.node_grace_seconds,
        max_file_bytes=config.thread_file_bytes,
        files_bytes=config.thread_files_bytes,
        files_count=config.thread_files_count,
        events_bytes=config.thread_events_bytes,
        events_count=config.thread_events_count,
        events_per_second=config.thread_events_per_second,
    )


def agent_memory(config: Config) -> Mapping[str, int]:
    """What an agent needs, where that is more than the default of all sandboxes."""
    needed = {name: KNOWN[name].memory_mb for name in config.agents if name in KNOWN}
    return {name: mb for name, mb in needed.items() if mb is not None and mb > config.mem_limit_mb}


def agent_defaults(config: Config) -> AgentDefaults:
    return AgentDefaults(
        model=config.default_model,
        model_preferences=config.model_preferences,
        allowed_models=config.allowed_models,
        thread_limits=config.thread_limits.limits(),
        owner_limits={owner: limits.limits() for owner, limits in config.key_limits.items()},
        owner_models={owner: limits.allowed_models for owner, limits in config.key_limits.items()},
        permissions=parse(config.permissions),
        system_prompt_file=config.system_prompt_file,
        persona_dir=config.persona_dir,
        persona=config.persona,
        image=config.default_image,
        agents_bin=str(AGENTS_BIN) if AGENTS_BIN.is_dir() else None,
    )


def _policy(idle: IdleConfig) -> IdlePolicy:
    return IdlePolicy(idle.pause_after_seconds, idle.hibernate_after_seconds, idle.destroy_after_seconds)
