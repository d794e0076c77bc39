"""Building the thread service, for ``wiring``."""

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from holdfast.agents.known import KNOWN
from holdfast.agents.registry import AgentRegistry
from holdfast.daemon.config import Config
from holdfast.daemon.default_agent import default_agent
from holdfast.daemon.thread_config import DEFAULT, IdleConfig
from holdfast.drivers.base import Driver
from holdfast.images.store import ImageStore
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools
from holdfast.threads.types import IdlePolicy


def make_threads(
    config: Config,
    store: Store,
    sessions: SessionService,
    driver: Driver,
    registry: CollectorRegistry,
    *,
    images: ImageStore,
    node: str,
) -> ThreadService:
    tools = Tools(
        store=store,
        sessions=sessions,
        agents=make_agents(config, driver, images),
        settings=thread_settings(config),
        metrics=ThreadMetrics(registry),
        node=node,
        clock=time.time,
    )
    return ThreadService(tools, config.thread_files_dir or config.state_dir / "thread-files")


def make_agents(config: Config, driver: Driver, images: ImageStore | None = None) -> AgentRegistry:
    """Those that the configuration names; in the sandboxes of the fake driver, there is only its fake agent."""
    if driver.name == "fake":
        from holdfast.agents.fake import FakeAgent
        from holdfast.agents.fake_world import FakeAgentWorld
        from holdfast.drivers.fake import FakeDriver

        assert isinstance(driver, FakeDriver)
        agents = AgentRegistry([])
        agents.add(FakeAgent(FakeAgentWorld(driver.world)))
        return agents
    default = default_agent(config, images, isolated=driver.capabilities.isolation)
    return AgentRegistry(config.agents, default)


def thread_settings(config: Config) -> ThreadSettings:
    policies = {platform: _policy(idle) for platform, idle in config.thread_idle.items()}
    return ThreadSettings(
        idle=policies.pop(DEFAULT, IdlePolicy()),
        platform_idle=policies,
        retry_seconds=config.thread_retry_seconds,
        resolve_seconds=config.thread_resolve_seconds,
        lease_seconds=config.thread_lease_seconds,
        agent_memory_mb=agent_memory(config),
        agent_idle_seconds=config.agent_idle_seconds,
        turn_seconds=config.turn_seconds,
        question_seconds=config.question_seconds,
        node_silent_seconds=min(20.0, config.node_grace_seconds / 2),
        node_grace_seconds=config.node_grace_seconds,
        max_file_bytes=config.thread_file_bytes,
    )


def agent_memory(config: Config) -> Mapping[str, int]:
    """What an agent needs, where that is more than the default of all sandboxes."""
    needed = {name: KNOWN[name].memory_mb for name in config.agents if name in KNOWN}
    return {name: mb for name, mb in needed.items() if mb is not None and mb > config.mem_limit_mb}


def _policy(idle: IdleConfig) -> IdlePolicy:
    return IdlePolicy(idle.pause_after_seconds, idle.hibernate_after_seconds, idle.destroy_after_seconds)
