"""From a thread to an agent that can be prompted: its sandbox, the agent in it, and the agent's conversation.

| what is found                          | what is done                                      | told as            |
| -------------------------------------- | ------------------------------------------------- | ------------------ |
| all of it                              | nothing                                           | reused             |
| the sandbox asleep, the agent down     | woken, started                                    | resumed            |
| the agent has lost the conversation    | a new one, which is told the history              | session_replaced   |
| the sandbox is certainly gone          | a new one, with an agent that is told the history | recreated          |
| anything else                          | tried again for a while, then reported            | the error          |
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from holdfast.agents import permissions
from holdfast.agents.base import Agent, ConversationId, PastMessage, Place
from holdfast.concurrency import KeyedLocks
from holdfast.errors import (
    AgentDown,
    AgentNotInstalled,
    AgentSessionMissing,
    AgentUnsupported,
    AgentWithoutModel,
    BadInput,
    ConfigError,
    HoldfastError,
    RepoFailed,
    StaleRow,
    ThreadNotFound,
)
from holdfast.records.threads import ChannelChange, ChannelRow, Lease, SleepState, ThreadChange, ThreadRow, fresh_after
from holdfast.store import Store
from holdfast.threads.resolve.briefs import Briefs
from holdfast.threads.resolve.deadline import ResolveTime
from holdfast.threads.resolve.sandboxes import GONE, Ready, Sandboxes, ThreadWorkspaces, resolved
from holdfast.threads.tools import Tools
from holdfast.threads.types import How, sleep_event
from holdfast.vocabulary.turn_events import TurnEvent

log = structlog.get_logger(__name__)

T = TypeVar("T")
_HOPELESS = (
    *(BadInput, ConfigError, StaleRow, ThreadNotFound, RepoFailed),
    *(AgentUnsupported, AgentNotInstalled, AgentWithoutModel),
)
"""Trying again changes nothing."""
MOST_BYTES = 1_000_000
"""Of all lines; the newest are kept."""
LINE_BYTES = 64_000
"""Of one line: a pasted log must not push out all the rest."""
_CUT = "\n[…]"
_RANK = [How.REUSED, How.RESUMED, How.SESSION_REPLACED, How.RECREATED, How.CREATED]


@dataclass(frozen=True, slots=True)
class AttachedAgent:
    """An agent that can be prompted."""

    thread: ThreadRow
    agent: Agent
    place: Place
    conversation: ConversationId
    how: How
    why: str | None
    changed: bool = False
    """Whether the thread's row was written to, though all was there."""


@dataclass(slots=True)
class _Story:
    """The most that had to be done, over all tries; which sandbox was tried, and what proved it to be gone."""

    time: ResolveTime
    how: How = How.REUSED
    why: str | None = None
    tried: str | None = None
    gone: HoldfastError | None = None
    tries: int = 0
    last: HoldfastError | None = None
    told: bool = True
    """Whether ``how`` stands among the thread's events."""

    def add(self, how: How, why: str | None, *, told: bool = False) -> None:
        if _RANK.index(how) > _RANK.index(self.how):
            self.how, self.why, self.told = how, why, told

    def news(self, session_id: str) -> list[TurnEvent]:
        """Return what is to be told in the transaction of the next change."""
        return [] if self.told else [resolved(self.how, self.why, session_id)]


class Resolver:
    """All methods are called by who holds the thread's lease."""

    def __init__(self, tools: Tools, sandboxes: Sandboxes, briefs: Briefs) -> None:
        self._tools = tools
        self._briefs = briefs
        self._workspaces = ThreadWorkspaces(tools)
        self._sandboxes = sandboxes
        self._locks = KeyedLocks[str]()

    async def resolve(self, lease: Lease, channel: str, *, in_turn: bool = False) -> AttachedAgent:
        """Try until it works, or has not worked for too long. Raises the last error then, which is noted in the row.

        ``in_turn``: its agent may be at work, and is not started again if it runs and answers.
        """
        settings = self._tools.settings
        time = ResolveTime(settings.resolve_seconds, least=settings.attempt_seconds)
        story = _Story(time)
        log.info("sandbox.resolve.start", thread_id=lease.thread_id, channel=channel)
        with self._tools.metrics.resolve_seconds.time():
            while True:
                try:
                    async with time.attempt(story.last):
                        found = await self._once(lease, channel, story, in_turn)
                    return await self._finish(lease, channel, found, story)
                except HoldfastError as error:
                    story.tries, story.last = story.tries + 1, error
                    story.gone = error if isinstance(error, GONE) else None
                    if isinstance(error, _HOPELESS) or self._too_late(story):
                        await self._note_failure(lease, error)
                        raise
                    self._tools.metrics.health_retries.inc()
                    log.warning("sandbox.health.retry", thread_id=lease.thread_id, code=error.code, error=error.message)
                if story.gone is None or story.tries > 1:
                    await self._tools.sleep(self._tools.settings.retry_seconds)

    def _too_late(self, story: _Story) -> bool:
        settings = self._tools.settings
        most = settings.resolve_seconds / max(settings.retry_seconds, 0.001)
        return story.tries > most or story.time.is_up_in(settings.retry_seconds)

    async def _once(self, lease: Lease, channel: str, story: _Story, in_turn: bool) -> AttachedAgent:
        ready, known = await self._sandbox(lease, channel, story)
        if ready.how in (How.CREATED, How.RECREATED):  # what came from a snapshot has had its conversations crossed out
            known = await self._tools.store.threads.channel(lease.thread_id, channel)
        story.add(ready.how, ready.why, told=ready.told)
        agent = self._tools.agents.get(ready.thread.agent)
        brief = await self._briefs.brief(ready.thread, channel)
        permissions.check(agent.name, agent.abilities.permissions, brief.permissions)
        place = Place(ready.session_id, self._tools.sessions, channel, brief, in_turn)
        conversation = await self._conversation(lease, agent, place, known, story)
        return AttachedAgent(ready.thread, agent, place, conversation, story.how, story.why)

    async def _sandbox(self, lease: Lease, channel: str, story: _Story) -> tuple[Ready, ChannelRow | None]:
        """Get the sandbox, one channel at a time: they share it, and one that is gone is made anew once."""
        lock, settings = self._locks.of(lease.thread_id), self._tools.settings
        with story.time.longer(settings.make_seconds + settings.clone_seconds):
            await lock.acquire()  # another channel may be making what this one needs
        try:
            found = await self._tools.store.threads.standing(lease.thread_id, channel)
            row = found.thread
            gone, story.gone = story.gone, None
            if gone is not None and row.session_id is not None and row.session_id == story.tried:
                ready = await self._sandboxes.make(lease, row, How.RECREATED, gone.message, channel, story.time)
            else:
                ready = await self._sandboxes.ready(lease, row, found.session, channel, story.time)
            story.tried = ready.session_id
            with story.time.longer(settings.clone_seconds + settings.attempt_seconds):
                ready = await self._workspaces.set_up(lease, ready, self._briefs.environment(ready.thread))
            return ready, found.channel
        finally:
            lock.release()

    async def _conversation(
        self, lease: Lease, agent: Agent, place: Place, known: ChannelRow | None, story: _Story
    ) -> ConversationId:
        """Return the one that it has, if the agent knows it: asking for that also tells whether the agent is up."""
        if known is None or known.agent_session_id is None:
            await self._ask_running(lease, agent, place, story, lambda: agent.health(place))
            return await self._new_conversation(lease, agent, place, known, "it has none yet", story)
        conversation = ConversationId(known.agent_session_id)
        try:
            await self._ask_running(lease, agent, place, story, lambda: agent.resume_conversation(place, conversation))
        except AgentSessionMissing as error:
            return await self._new_conversation(lease, agent, place, known, error.message, story)
        return conversation

    async def _ask_running(
        self, lease: Lease, agent: Agent, place: Place, story: _Story, ask: Callable[[], Awaitable[T]]
    ) -> T:
        """Ask the agent; start it first if it is down. That counts as use of its channel, so it is not stopped soon."""
        try:
            return await ask()
        except AgentDown as error:
            await self._workspaces.keep(place)
            with story.time.longer(self._tools.settings.start_seconds):
                await agent.start(place)
            story.add(How.RESUMED, f"the agent was down: {error.message}")
            await self._change_channel(lease, place, {}, story)
            return await ask()

    async def _new_conversation(
        self, lease: Lease, agent: Agent, place: Place, known: ChannelRow | None, lost: str, story: _Story
    ) -> ConversationId:
        """Make another. Whoever said that the old one is missing need not have asked the agent: it may be down."""
        store, limit = self._tools.store, self._tools.settings.history_lines
        told = await _history(store, lease.thread_id, place.channel, limit)
        conversation = await self._ask_running(
            lease, agent, place, story, lambda: agent.create_conversation(place, told)
        )
        is_other = known is not None and known.agent_session_id is not None
        if is_other:
            story.add(How.SESSION_REPLACED, lost)
        await self._change_channel(lease, place, {"agent_session_id": conversation}, story)
        if known is not None and is_other:
            self._tools.metrics.replaced.inc()
            log.info(
                "sandbox.session.replaced",
                thread_id=lease.thread_id,
                channel=place.channel,
                old=known.agent_session_id,
                new=conversation,
                why=lost,
            )
        return conversation

    async def _change_channel(self, lease: Lease, place: Place, values: ChannelChange, story: _Story) -> None:
        """Change the channel, and tell of it in the same transaction."""
        news = story.news(place.session_id)
        await self._tools.store.threads.change_channel(lease, place.channel, values, events=news)
        story.told = True

    async def _finish(self, lease: Lease, channel: str, found: AttachedAgent, story: _Story) -> AttachedAgent:
        row = found.thread
        if row.last_error is not None or row.resume_failures:
            row = await self._tools.store.threads.clear_error(lease)
        news = story.news(found.place.session_id)
        if row.sleep_state != SleepState.AWAKE:
            news.append(sleep_event(SleepState.AWAKE))
            woken: ThreadChange = {"sleep_state": SleepState.AWAKE}
            row = await self._tools.store.threads.change(lease, woken, events=news, channel=channel)
        elif news:
            await self._tools.store.thread_events.record(lease, news, channel=channel)
        log.info(
            "sandbox.resolve.reuse" if story.how is How.REUSED else "sandbox.resolve.ok",
            thread_id=lease.thread_id,
            channel=channel,
            session_id=found.place.session_id,
            how=story.how,
            why=story.why,
        )
        return replace(found, thread=row, changed=row is not found.thread)

    async def _note_failure(self, lease: Lease, error: HoldfastError) -> None:
        """Note in the row what went wrong; nothing else in it changes."""
        log.error("sandbox.resolve.failed", thread_id=lease.thread_id, code=error.code, error=error.message)
        if not isinstance(error, StaleRow | ThreadNotFound):
            await self._tools.store.threads.note_error(lease, f"{error.code}: {error.message}")


async def _history(store: Store, thread_id: str, channel: str, limit: int) -> Sequence[PastMessage]:
    """Return what was said, oldest first, since the channel last began anew.

    A message that its agent has never been asked is left out: that is still to come.
    """
    pending = {turn.id for turn in await store.turns.unfinished(thread_id) if not turn.accepted}
    after = fresh_after(await store.threads.get(thread_id), channel)
    lines = await store.turns.transcript(thread_id, channel=channel, limit=limit, after=after)
    return bounded(PastMessage(line.role, line.text) for line in lines if line.turn_id not in pending and line.text)


def bounded(lines: Iterable[PastMessage], *, most: int = MOST_BYTES, line_most: int = LINE_BYTES) -> list[PastMessage]:
    """Return as many of the last ones as fit, long ones cut."""
    kept: list[PastMessage] = []
    for line in reversed(list(lines)):
        cut = PastMessage(line.role, _shortened(line.text, line_most))
        most -= len(_bytes(cut.text))
        if most < 0:
            break
        kept.append(cut)
    return kept[::-1]


def _shortened(text: str, most: int) -> str:
    if len(_bytes(text)) <= most:
        return text
    return _bytes(text)[:most].decode(errors="ignore") + _CUT


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
