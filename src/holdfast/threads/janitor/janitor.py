"""Once a minute: idle threads go to sleep, what nobody needs is removed, what was left half done is finished.

Only this host's sandboxes are touched. Each thread is claimed with the condition repeated in the UPDATE: one that was
used meanwhile is left alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from holdfast.errors import Conflict, DriverUnsupported, HoldfastError, SessionNotFound, ThreadNotFound, WrongState
from holdfast.records.machine import LIVE, PausedAs, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.sleep import FROM_STATES, IdlePolicy, SleepFacts, SleepStep, due
from holdfast.records.threads import SleepState, ThreadRow
from holdfast.sessions.watch.clock import DOUBT_SECONDS
from holdfast.store.threads.leases import Idle
from holdfast.threads import options
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.desk.work import destroy, put_to_sleep
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.janitor.idle_agents import IdleAgents
from holdfast.threads.resolve.sandboxes import Sandboxes, made_for
from holdfast.threads.tools import Tools
from holdfast.threads.turns.quota import prune_all
from holdfast.threads.types import sleep_event

log = structlog.get_logger(__name__)

_BATCH = 1000
_OWN_SECONDS = 1.0
"""Within so much of our own use of a session, what it tells of its last use is ours."""
_HOLD_SECONDS = 120.0
"""Longer than any one step takes."""
_SWEEP_SECONDS = 86400.0
"""How often to look for files that no row names."""
_SKEW_SECONDS = 60.0
"""By how much the clocks of a host and of the database may differ."""
_SHORTEST_SECONDS = 60.0
"""Threads may have a policy of their own; those idle for less are not even looked at."""


class Janitor:
    """Use ``tick``; each part reports its own troubles, and the next tick tries again."""

    def __init__(
        self, tools: Tools, hosts: Hosts, sandboxes: Sandboxes, files: ThreadFileService, agents: IdleAgents
    ) -> None:
        self._tools = tools
        self._hosts = hosts
        self._sandboxes = sandboxes
        self._files = files
        self._agents = agents
        self._reported: set[tuple[str, str]] = set()
        self._swept_at: float | None = None
        self._clocks: tuple[float, float] | None = None
        """The store's and this machine's, which never jumps, at the last tick."""
        self._doubtful_until = 0.0
        """By the clock that never jumps: until then nothing is removed for its age."""
        self._owner = f"{tools.node}/janitor"
        """Not that of the mailboxes: they must not take a thread from under its hands, nor it from under theirs."""

    async def start(self) -> None:
        """Let go of threads that an earlier daemon of this host had claimed when it died."""
        await self._tools.store.leases.release_all(self._owner)

    async def close(self) -> None:
        """Let go of threads that a tick had claimed when it was cut off; others wait for them. Call it when no tick
        runs any more."""
        try:
            await self._tools.store.leases.release_all(self._owner)
        except HoldfastError as error:
            log.warning("thread.leases.kept", error=error.message, next="they run out by themselves")

    async def tick(self) -> None:
        """Agents that are slow to stop keep nobody else waiting."""
        parts = (self.put_to_sleep, self.finish_deletes, self.sweep, self.report_silent_hosts, self.forget)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._try(self._agents.stop))
            for part in parts:
                await self._try(part)

    async def _try(self, part: Callable[[], Awaitable[None]]) -> None:
        name = getattr(part, "__qualname__", repr(part))
        try:
            await part()
        except HoldfastError as error:
            log.warning("thread.janitor.failed", part=name, code=error.code, error=error.message)
        except Exception:
            log.exception("thread.janitor.failed", part=name)

    # -- idle threads ------------------------------------------------------------------------------------------------

    async def put_to_sleep(self) -> None:
        """Put idle threads to sleep, the furthest step first: one that is due to be destroyed need not be stopped
        before."""
        await self._after_a_jump()
        await self._see_who_woke()
        policies = [self._tools.settings.idle, *self._tools.settings.platform_idle.values()]
        for step, states in FROM_STATES.items():
            await self._each(step, states, [policy.after(step) for policy in policies])

    async def _after_a_jump(self) -> None:
        """A clock that was set meanwhile says nothing about use: from then on, idleness is counted anew."""
        wall, steady = await self._tools.store.leases.now(), time.clock_gettime(time.CLOCK_BOOTTIME)
        before, self._clocks = self._clocks, (wall, steady)
        jumped = 0.0 if before is None else (wall - before[0]) - (steady - before[1])
        before_us = before is None and self._tools.sessions.clock_is_doubtful
        if before_us or abs(jumped) > _SKEW_SECONDS:
            log.warning("thread.clock.jumped", seconds=None if before_us else round(jumped))
            self._doubtful_until = steady + DOUBT_SECONDS
            await self._tools.store.threads.touch_all(self._tools.node)

    def _is_doubtful(self) -> bool:
        """Say whether the clock was set lately, so that what looks old may not be."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) < self._doubtful_until

    async def _see_who_woke(self) -> None:
        """A sandbox can be used by its own id, for a command or a terminal: its thread is awake then, and sleeps by
        the same rules as the others."""
        threads, leases = self._tools.store.threads, self._tools.store.leases
        asleep = (SleepState.PAUSED, SleepState.HIBERNATED)
        for row in await threads.on_node(self._tools.node, sleep_states=asleep, session_status=Status.ACTIVE):
            anyhow = Idle(sleep_states=asleep, idle_for=0.0)
            claimed = await leases.claim_idle(row.id, anyhow, owner=self._owner, ttl=_HOLD_SECONDS)
            if claimed is None:
                continue  # somebody works on it, and writes that down
            try:
                woken = [sleep_event(SleepState.AWAKE)]
                await threads.change(claimed.lease, {"sleep_state": SleepState.AWAKE}, events=woken)
                log.info("thread.woken", thread_id=row.id, key=row.key, session_id=row.session_id)
            finally:
                await leases.release(claimed.lease, if_done=False)

    async def _each(self, step: SleepStep, states: tuple[SleepState, ...], after: list[float | None]) -> None:
        shortest = min([_SHORTEST_SECONDS, *(seconds for seconds in after if seconds is not None)])
        async for row in self._idle(Idle(sleep_states=states, idle_for=shortest)):
            policy, facts = self._policy(row), SleepFacts(row.sleep_state, row.last_activity_at)
            if step not in due(policy, facts, time.time() + _SKEW_SECONDS):
                continue  # not yet by far: the claim itself goes by the one clock
            try:
                await self._take_step(row, step, Idle(sleep_states=states, idle_for=policy.after(step) or 0.0))
            except HoldfastError as error:
                log.warning("thread.idle.failed", thread_id=row.id, step=step, code=error.code, error=error.message)

    async def _idle(self, rule: Idle) -> AsyncIterator[ThreadRow]:
        """Yield the idle threads of this host, page by page: those that stay as they are must not hide the others."""
        after: tuple[float, str] | None = None
        while True:
            page = await self._tools.store.leases.idle(rule, limit=_BATCH, nodes=[self._tools.node], after=after)
            for row in page:
                yield row
            if len(page) < _BATCH:
                return
            after = page[-1].last_activity_at, page[-1].id

    def _policy(self, row: ThreadRow) -> IdlePolicy:
        return options.from_json(row.settings).idle or self._tools.settings.idle_of(row.platform)

    async def _take_step(self, row: ThreadRow, step: SleepStep, rule: Idle) -> None:
        leases = self._tools.store.leases
        claimed = await leases.claim_idle(row.id, rule, owner=self._owner, ttl=_HOLD_SECONDS)
        if claimed is None or claimed.session_id is None:
            return
        try:
            if await self._is_used(claimed, claimed.session_id, rule.idle_for):
                await self._tools.store.threads.touch(row.id)
                return
            await self._do(claimed, claimed.session_id, step)
            log.info("thread.idle", thread_id=row.id, key=row.key, step=step, session_id=claimed.session_id)
        finally:
            await leases.release(claimed.lease, if_done=False)

    async def _is_used(self, row: ThreadRow, session_id: str, idle_for: float) -> bool:
        """Say whether the sandbox is used without a message: by a terminal or a command. The sandbox itself knows."""
        try:
            used = (await self._tools.sessions.get(session_id)).last_activity_at
        except SessionNotFound:
            return False
        ours = self._agents.our_use(session_id) + _OWN_SECONDS
        return used > max(row.last_activity_at, ours) and self._tools.clock() - used < idle_for

    async def _do(self, row: ThreadRow, session_id: str, step: SleepStep) -> None:
        threads = self._tools.store.threads
        if step is SleepStep.DESTROY:
            await destroy(self._tools, session_id)
            await threads.set_session(row.lease, None, events=[sleep_event(SleepState.NONE)])
            return
        how = PausedAs.FILES if step is SleepStep.HIBERNATE else PausedAs.FROZEN
        try:
            state = await put_to_sleep(self._tools, session_id, how)
        except (SessionNotFound, WrongState):
            state = SleepState.HIBERNATED  # it died, or was destroyed: the next message finds out, and brings another
        news = [sleep_event(state)] if state != row.sleep_state else []
        await threads.change(row.lease, {"sleep_state": state}, events=news)

    # -- leftovers ---------------------------------------------------------------------------------------------------

    async def finish_deletes(self) -> None:
        """Finish deleted threads whose sandbox could not be destroyed at once."""
        store = self._tools.store
        for row in await store.threads.deleted(limit=_BATCH, node=self._tools.node):
            if row.session_id is None:
                continue
            try:
                taken = await store.leases.take(row.id, owner=self._owner, ttl=_HOLD_SECONDS)
                try:
                    await destroy(self._tools, row.session_id)
                    await store.threads.set_session(taken.lease, None)
                finally:
                    await store.leases.release(taken.lease, if_done=False)
            except HoldfastError as error:
                log.warning("thread.delete.failed", thread_id=row.id, code=error.code, error=error.message)

    async def sweep(self) -> None:
        """Destroy sandboxes on this host that were made for a thread and are not, or not any more, its own."""
        for session in await self._tools.store.sessions.by_status(LIVE, node=self._tools.node):
            made = made_for(session)
            if made is not None and session.status != Status.DESTROYING and await self._is_orphan(session, *made):
                if await self._kept_aside(session, made[0]):
                    continue
                log.warning("thread.orphan.removed", session_id=session.id, thread_id=made[0])
                await self._sandboxes.discard(session.id)

    async def _is_orphan(self, session: SessionRow, thread_id: str, number: int) -> bool:
        try:
            row = await self._tools.store.threads.get(thread_id)
        except ThreadNotFound:
            return True
        if row.session_id == session.id:
            return False
        if number <= row.incarnation:
            return True
        old = session.created_at + self._tools.settings.half_made_seconds < self._tools.clock()
        return (
            old and not self._is_doubtful() and row.lease_owner is None
        )  # whoever resolves the thread would still take it

    async def _kept_aside(self, session: SessionRow, thread_id: str) -> bool:
        """This host was given up, and the thread went on elsewhere without these files: they are kept for a while.

        Asleep, as files, so that nothing in there works on; a person can wake the session by its id and fetch them.
        """
        try:
            row = await self._tools.store.threads.get(thread_id)
        except ThreadNotFound:
            return False
        if await self._hosts.home_of(row) in (self._tools.node, None):
            return False
        if session.status == Status.PAUSED and session.paused_as == PausedAs.FILES:
            since = session.paused_at or session.updated_at
            return self._is_doubtful() or since + self._tools.settings.keep_aside_seconds > self._tools.clock()
        try:
            await self._tools.sessions.pause(session.id, PausedAs.FILES)
        except WrongState:
            return session.status != Status.ERROR  # on its way somewhere: the next sweep looks again
        except DriverUnsupported:
            return False  # it cannot sleep, and two that work for one thread are worse
        days = self._tools.settings.keep_aside_seconds / 86400
        trouble = f"it went on without the files of {session.id} on {session.node}, which are kept for {days:g} days"
        log.warning("thread.orphan.kept", thread_id=row.id, key=row.key, session_id=session.id, error=trouble)
        await self._report(row, trouble)
        return True

    async def report_silent_hosts(self) -> None:
        """Report on threads whose sandbox is on a host that is silent, until it is back or they are served
        elsewhere."""
        silent = await self._hosts.silent()
        self._reported = {(node, row_id) for node, row_id in self._reported if node in silent}
        for node, since in silent.items():
            for row in await self._tools.store.threads.on_node(node):
                if (node, row.id) not in self._reported:
                    trouble = f"its host {node} has not been heard of since {since}"
                    await self._report(row, trouble)
                    log.warning("thread.host.silent", thread_id=row.id, key=row.key, error=trouble)
                    self._reported.add((node, row.id))

    async def _report(self, row: ThreadRow, trouble: str) -> None:
        store = self._tools.store
        if row.last_error == trouble:
            return
        try:
            taken = await store.leases.take(row.id, owner=self._owner, ttl=self._tools.settings.lease_seconds)
        except Conflict:
            return
        try:
            await store.threads.note_error(taken.lease, trouble)
        finally:
            await store.leases.release(taken.lease, if_done=False)

    async def forget(self) -> None:
        """Remove rows and files of deleted threads, uploads that no message ever named, and requests that are done."""
        if self._is_doubtful():
            return
        store, settings = self._tools.store, self._tools.settings
        await store.thread_requests.forget(older_than=settings.keep_requests_seconds)
        await prune_all(self._tools)
        paths = await store.threads.purge(older_than=settings.keep_deleted_seconds)
        paths += await store.thread_files.remove_unused(older_than=settings.keep_uploads_seconds)
        await self._files.remove(paths)
        if self._swept_at is None or self._tools.clock() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = self._tools.clock()
            await self._files.sweep()
