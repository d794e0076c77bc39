"""What every part of the thread service works with, in one object; and where threads' ids come from."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.agents.registry import AgentRegistry
from holdfast.sessions.live import Clock
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.files.voice import NoTranscriber, Transcriber
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.settings import ThreadSettings

Sleep = Callable[[float], Awaitable[None]]


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
    transcriber: Transcriber = field(default_factory=NoTranscriber)
    """Writes down what audio files say."""


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(13)}"
