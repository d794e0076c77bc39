"""How much one turn may tell, how fast, and how much of a thread is kept: its events stand in the host's database.

A conversation goes on for months, so it is never refused for what it has told before: the oldest events are forgotten.
What was said stays, in the messages and the turns. Only a turn that would take more than half of a thread's room by
itself is ended; and one that tells faster than anybody reads is slowed down.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from holdfast.agents.base import AgentEvent
from holdfast.errors import AgentFailed
from holdfast.threads.tools import Tools
from holdfast.vocabulary.turn_events import characters

log = structlog.get_logger(__name__)

_BURST_SECONDS: Final = 10.0
"""So long a turn may tell as fast as it likes, of the pace of that time."""
_MOST_PAUSE: Final = 5.0
_PARTS: Final = 20
"""A thread's room is looked after each time that such a part of it has been told, and by the janitor."""


class TurnQuota:
    """Of one turn, as far as this daemon has heard it."""

    def __init__(self, tools: Tools, thread_id: str) -> None:
        self._tools = tools
        self._thread_id = thread_id
        self._said = self._count = 0
        self._checked = (0, 0)
        self._owed = 0.0
        self._at = asyncio.get_running_loop().time()

    def count(self, news: Sequence[AgentEvent]) -> None:
        """Count them. Raises ``AgentFailed`` where it is more than one turn may tell."""
        settings = self._tools.settings
        self._said += sum(characters(told.event.data) for told in news)
        self._count += len(news)
        if self._said > settings.events_bytes // 2:
            most = f"{settings.events_bytes // 2_000_000} million characters"
            raise AgentFailed(f"the agent has said more than {most} in this turn, and was stopped")
        if self._count > settings.events_count // 2:
            most = f"{settings.events_count // 2} events"
            raise AgentFailed(f"the agent has told more than {most} in this turn, and was stopped")

    async def keep(self, news: int) -> None:
        """Forget old ones after so many were stored, if it is time to, and wait if they come too fast."""
        settings = self._tools.settings
        said, count = self._said - self._checked[0], self._count - self._checked[1]
        if said > settings.events_bytes // _PARTS or count > settings.events_count // _PARTS:
            self._checked = (self._said, self._count)
            await prune(self._tools, self._thread_id)
        now = asyncio.get_running_loop().time()
        pace = settings.events_per_second
        self._owed = max(0.0, self._owed - (now - self._at) * pace) + news
        self._at = now
        too_many = self._owed - pace * _BURST_SECONDS
        if too_many > 0:
            await asyncio.sleep(min(too_many / pace, _MOST_PAUSE))


async def prune(tools: Tools, thread_id: str) -> None:
    """Forget the oldest events of a thread that has too many."""
    settings = tools.settings
    forgotten = await tools.store.thread_events.prune(
        thread_id, most_bytes=settings.events_bytes, most_events=settings.events_count
    )
    if forgotten:
        log.info("thread.events.pruned", thread_id=thread_id, events=forgotten)


async def prune_all(tools: Tools) -> None:
    """Forget, now and then, what many small turns have come to."""
    settings = tools.settings
    for thread_id in await tools.store.thread_events.too_many(
        most_bytes=settings.events_bytes, most_events=settings.events_count
    ):
        await prune(tools, thread_id)
