"""What every part of the thread service works with: one object, writes that wait for the store, and new ids."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import structlog

from holdfast.agents.registry import AgentRegistry
from holdfast.errors import DiskFull, Unavailable
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import Clock
from holdfast.store import Store
from holdfast.threads.files.voice import NoTranscriber, Transcriber
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.settings import ThreadSettings

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
RETRY_SECONDS = 0.5


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

    async def write(self, work: Callable[P, Awaitable[T]], *args: P.args, **more: P.kwargs) -> T:
        """Write as ``retry_write`` does, with the pauses of this daemon."""
        return await retry_write(lambda: work(*args, **more), self.sleep)


async def retry_write(write: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
    """Write to the store, again and again while it is away or full. ``write`` must be safe to repeat.

    There is no deadline here: the holder of a lease is cancelled as soon as the lease cannot be renewed any more.
    """
    while True:
        try:
            return await write()
        except (Unavailable, DiskFull) as error:
            log.warning("thread.write.waits", code=error.code, error=error.message)
        await sleep(RETRY_SECONDS)


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(13)}"
