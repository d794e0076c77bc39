"""Agents of channels in which nothing is asked are stopped: an idle thread costs no agent's memory.

The next message starts them again, with their conversations. A sandbox that sleeps is left alone, and so is a channel
whose turn is running, however long that takes.
"""

import asyncio
import time

import structlog

from holdfast.errors import HoldfastError
from holdfast.records.threads import SleepState, ThreadRow
from holdfast.threads.desk.errands import StopAgent
from holdfast.threads.desk.mailbox import Office
from holdfast.threads.tools import Tools

log = structlog.get_logger(__name__)

_AT_ONCE = 8
_MOST_SECONDS = 30.0
"""For the agents of one thread: TERM, KILL, and the way there."""
_LATER_SECONDS = 600.0


class IdleAgents:
    """Of this host. Part of the janitor."""

    def __init__(self, tools: Tools, office: Office) -> None:
        self._tools = tools
        self._office = office
        self._seen: dict[tuple[str, str], float] = {}
        """When a channel was last used whose agent was stopped, so that it is stopped once."""
        self._later: dict[str, float] = {}
        """Threads with which it did not work, and until when they are left alone."""
        self._used_at: dict[str, float] = {}
        """When we last used a session: that is nobody's activity."""

    def our_use(self, session_id: str) -> float:
        """Return when a session was last used from here; 0 if never."""
        return self._used_at.get(session_id, 0.0)

    async def stop(self) -> None:
        rows = await self._tools.store.threads.on_node(self._tools.node)
        awake = [row for row in rows if row.session_id is not None and row.sleep_state == SleepState.AWAKE]
        there = {row.id for row in awake}
        self._seen = {which: at for which, at in self._seen.items() if which[0] in there}
        sessions = {row.session_id for row in awake}
        self._used_at = {session: at for session, at in self._used_at.items() if session in sessions}
        now = asyncio.get_running_loop().time()
        self._later = {id: until for id, until in self._later.items() if id in there and until > now}
        few = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for row in awake:
                if row.id not in self._later:
                    group.create_task(self._try_to_stop(row, few))

    async def _try_to_stop(self, row: ThreadRow, few: asyncio.Semaphore) -> None:
        """Stop the idle agents of one thread. One that cannot be reached in time is left alone for a while."""
        try:
            async with few, asyncio.timeout(_MOST_SECONDS):
                await self._stop_idle(row)
        except (HoldfastError, TimeoutError) as error:
            self._later[row.id] = asyncio.get_running_loop().time() + _LATER_SECONDS
            log.warning("agent.idle.failed", thread_id=row.id, error=str(error) or f"not within {_MOST_SECONDS:.0f} s")

    async def _stop_idle(self, row: ThreadRow) -> None:
        seconds, store = self._tools.settings.agent_idle_seconds, self._tools.store
        for channel in await store.threads.channels(row.id):
            which = row.id, channel.channel
            old = channel.updated_at + seconds <= time.time()  # as the store counts it, give or take a little
            if channel.agent_session_id is None or not old or self._seen.get(which) == channel.updated_at:
                continue
            try:
                await self._office.ask(row, StopAgent(channel.channel, seconds))
                self._seen[which] = channel.updated_at
            finally:
                if row.session_id is not None:
                    self._used_at[row.session_id] = self._tools.clock()
