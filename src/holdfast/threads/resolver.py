"""From a thread to an agent that can be prompted: its sandbox, the agent in it, and the agent's session.

| what is found                          | what is done                                      | told as            |
| -------------------------------------- | ------------------------------------------------- | ------------------ |
| all of it                              | nothing                                           | reused             |
| the sandbox asleep, the agent down     | woken, started                                    | resumed            |
| the agent has lost the session         | a new one, which is told the history              | session_replaced   |
| the sandbox is certainly gone          | a new one, with an agent that is told the history | recreated          |
| a preview that has run out, is refused | another one                                       | nothing            |
| anything else                          | tried again for a while, then reported            | the error          |
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import structlog

from holdfast.agents.base import Agent, AgentSessionId, Place
from holdfast.errors import (
    AgentDown,
    AgentNotInstalled,
    AgentSessionMissing,
    AgentUnsupported,
    BadInput,
    ConfigError,
    HoldfastError,
    RepoFailed,
    StaleRow,
    ThreadNotFound,
)
from holdfast.protocol.turn_events import Kind, TurnEvent
from holdfast.store.thread_rows import ChannelRow, Lease, SleepState, ThreadRow
from holdfast.threads.briefs import Briefs
from holdfast.threads.preview import PreviewKeeper
from holdfast.threads.sandboxes import GONE, Ready, Sandboxes
from holdfast.threads.tools import Tools
from holdfast.threads.transcript import history
from holdfast.threads.types import How
from holdfast.threads.workspaces import Workspaces

log = structlog.get_logger(__name__)

_HOPELESS = (BadInput, ConfigError, StaleRow, ThreadNotFound, AgentUnsupported, AgentNotInstalled, RepoFailed)
"""Trying again changes nothing."""
_RANK = [How.REUSED, How.RESUMED, How.SESSION_REPLACED, How.RECREATED, How.CREATED]


@dataclass(frozen=True, slots=True)
class Attached:
    """An agent that can be prompted."""

    thread: ThreadRow
    agent: Agent
    place: Place
    session: AgentSessionId
    how: How
    why: str | None
    changed: bool = False
    """Whether the thread's row was written to, though all was there."""


@dataclass(slots=True)
class _Story:
    """The most that had to be done, over all tries; which sandbox was tried, and what proved it to be gone."""

    how: How = How.REUSED
    why: str | None = None
    tried: str | None = None
    gone: HoldfastError | None = None
    tries: int = 0

    def add(self, how: How, why: str | None) -> None:
        if _RANK.index(how) > _RANK.index(self.how):
            self.how, self.why = how, why


class Resolver:
    """All methods are called by who holds the thread's lease."""

    def __init__(self, tools: Tools, sandboxes: Sandboxes, previews: PreviewKeeper, briefs: Briefs) -> None:
        self._tools = tools
        self._briefs = briefs
        self._workspaces = Workspaces(tools)
        self._previews = previews
        self._sandboxes = sandboxes
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def resolve(self, lease: Lease, channel: str, *, in_turn: bool = False) -> Attached:
        """Until it works, or has not worked for too long. Raises the last error then, which is noted in the row.

        ``in_turn``: its agent may be at work, and is not started again if it runs and answers.
        """
        story, loop = _Story(), asyncio.get_running_loop()
        log.info("sandbox.resolve.start", thread_id=lease.thread_id, channel=channel)
        until = loop.time() + self._tools.settings.resolve_seconds
        with self._tools.metrics.resolve_seconds.time():
            while True:
                try:
                    return await self._finished(lease, channel, await self._once(lease, channel, story, in_turn), story)
                except HoldfastError as error:
                    story.tries += 1
                    story.gone = error if isinstance(error, GONE) else None
                    if isinstance(error, _HOPELESS) or self._too_late(story, until):
                        await self._failed(lease, error)
                        raise
                    self._tools.metrics.health_retries.inc()
                    log.warning("sandbox.health.retry", thread_id=lease.thread_id, code=error.code, error=error.message)
                if story.gone is None or story.tries > 1:
                    await self._tools.sleep(self._tools.settings.retry_seconds)

    def _too_late(self, story: _Story, until: float) -> bool:
        settings = self._tools.settings
        most = settings.resolve_seconds / max(settings.retry_seconds, 0.001)
        return story.tries > most or asyncio.get_running_loop().time() + settings.retry_seconds > until

    async def _once(self, lease: Lease, channel: str, story: _Story, in_turn: bool) -> Attached:
        ready, known = await self._sandbox(lease, channel, story)
        if ready.how in (How.CREATED, How.RECREATED):  # what came from a snapshot has had its sessions crossed out
            known = await self._tools.store.threads.channel(lease.thread_id, channel)
        story.add(ready.how, ready.why)
        agent = self._tools.agents.get(ready.thread.agent)
        brief = await self._briefs.brief(ready.thread, channel)
        place = Place(ready.session_id, self._tools.sessions, channel, brief, in_turn)
        session = await self._agent_session(lease, agent, place, known, story)
        return Attached(ready.thread, agent, place, session, story.how, story.why)

    async def _sandbox(self, lease: Lease, channel: str, story: _Story) -> tuple[Ready, ChannelRow | None]:
        """One channel at a time: they share the sandbox, and one that is gone is made anew once."""
        async with self._locks.setdefault(lease.thread_id, asyncio.Lock()):
            found = await self._tools.store.threads.standing(lease.thread_id, channel)
            row = found.thread
            gone, story.gone = story.gone, None
            if gone is not None and row.session_id is not None and row.session_id == story.tried:
                ready = await self._sandboxes.remake(lease, row, gone)
            else:
                ready = await self._sandboxes.ready(lease, row, found.session)
            story.tried = ready.session_id
            ready = await self._workspaces.given(lease, ready, self._briefs.environment(ready.thread))
            return ready, found.channel

    async def _agent_session(
        self, lease: Lease, agent: Agent, place: Place, known: ChannelRow | None, story: _Story
    ) -> AgentSessionId:
        """The one that it has, if the agent knows it; asking for that also tells whether the agent is up."""
        if known is None or known.agent_session_id is None:
            await self._answering(lease, agent, place, story, lambda: agent.health(place))
            return await self._new_session(lease, agent, place, known, "it has none yet", story)
        session = AgentSessionId(known.agent_session_id)
        try:
            await self._answering(lease, agent, place, story, lambda: agent.resume_session(place, session))
        except AgentSessionMissing as error:
            return await self._new_session(lease, agent, place, known, error.message, story)
        return session

    async def _answering(
        self, lease: Lease, agent: Agent, place: Place, story: _Story, ask: Callable[[], Awaitable[None]]
    ) -> None:
        """Ask; an agent that is down is started first. That counts as use of its channel: it is not stopped soon."""
        try:
            await ask()
        except AgentDown as error:
            await self._workspaces.keep(place)
            await agent.start(place)
            await self._tools.store.threads.change_channel(lease, place.channel, {})
            story.add(How.RESUMED, f"the agent was down: {error.message}")
            await ask()

    async def _new_session(
        self, lease: Lease, agent: Agent, place: Place, known: ChannelRow | None, lost: str, story: _Story
    ) -> AgentSessionId:
        store, limit = self._tools.store, self._tools.settings.history_lines
        session = await agent.create_session(place, await history(store, lease.thread_id, place.channel, limit))
        await store.threads.change_channel(lease, place.channel, {"agent_session_id": session})
        if known is not None and known.agent_session_id is not None:
            self._tools.metrics.replaced.inc()
            story.add(How.SESSION_REPLACED, lost)
            log.info(
                "sandbox.session.replaced",
                thread_id=lease.thread_id,
                channel=place.channel,
                old=known.agent_session_id,
                new=session,
                why=lost,
            )
        return session

    async def _finished(self, lease: Lease, channel: str, found: Attached, story: _Story) -> Attached:
        row = found.thread
        if row.last_error is not None or row.resume_failures:
            row = await self._tools.store.threads.clear_error(lease)
        row = await self._previews.kept(lease, row)
        if row.sleep_state != SleepState.AWAKE:
            row = await self._tools.store.threads.change(lease, {"sleep_state": SleepState.AWAKE})
        log.info(
            "sandbox.resolve.reuse" if story.how is How.REUSED else "sandbox.resolve.ok",
            thread_id=lease.thread_id,
            channel=channel,
            session_id=found.place.session_id,
            how=story.how,
            why=story.why,
        )
        if story.how is not How.REUSED:
            data = {"how": str(story.how), "why": story.why, "session_id": found.place.session_id}
            await self._tools.store.thread_events.record(lease, [TurnEvent(Kind.RESOLVED, data)], channel=channel)
        return replace(found, thread=row, changed=row is not found.thread)

    async def _failed(self, lease: Lease, error: HoldfastError) -> None:
        """The row stays as it is, with what went wrong."""
        log.error("sandbox.resolve.failed", thread_id=lease.thread_id, code=error.code, error=error.message)
        if not isinstance(error, StaleRow | ThreadNotFound):
            await self._tools.store.threads.note_error(lease, f"{error.code}: {error.message}")
