"""What every part of the thread service works with, in one object; and where threads' ids come from."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.agents.registry import AgentRegistry
from holdfast.protocol.models import Model
from holdfast.sessions.live import Clock
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.settings import ThreadSettings

Sleep = Callable[[float], Awaitable[None]]
Models = Callable[[], Sequence[Model]]


def no_models() -> Sequence[Model]:
    return ()


@dataclass(frozen=True, slots=True)
class Tools:
    """Made once, by the daemon."""

    store: Store
    sessions: SessionService
    agents: AgentRegistry
    settings: ThreadSettings
    metrics: ThreadMetrics
    node: str
    """This host's name in the store; leases are taken in it, so a daemon that comes back has its own at once."""
    clock: Clock
    sleep: Sleep = asyncio.sleep
    """Between two tries; tests bring their own."""
    models: Models = no_models
    """What the broker offers, in the order of its configuration; asked each time, since keys come and go."""


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(13)}"
