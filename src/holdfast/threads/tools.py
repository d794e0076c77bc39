"""What every part of the thread service works with, in one object; and where threads' ids come from."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from holdfast.agents.base import Agent
from holdfast.errors import ConfigError
from holdfast.sessions.live import Clock
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.settings import ThreadSettings

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tools:
    """Made once, by the daemon."""

    store: Store
    sessions: SessionService
    agents: Mapping[str, Agent]
    settings: ThreadSettings
    metrics: ThreadMetrics
    node: str
    """This host's name in the store; leases are taken in it, so a daemon that comes back has its own at once."""
    clock: Clock
    sleep: Sleep = asyncio.sleep
    """Between two tries; tests bring their own."""

    def agent(self, name: str) -> Agent:
        try:
            return self.agents[name]
        except KeyError:
            known = ", ".join(sorted(self.agents)) or "none"
            raise ConfigError(f"agents: this daemon has no agent {name}; it has: {known}") from None


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(13)}"
