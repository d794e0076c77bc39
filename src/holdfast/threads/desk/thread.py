"""A thread that this daemon works on: its lease, its news, its channels, and the tasks that are the parts of the work.

The mailbox begins those parts; errands use what is here, and so do turns. What is legal when says ``threads.machine``.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from functools import partial

import structlog

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import HoldfastError, StaleRow, ThreadNotFound, WrongState
from holdfast.records.threads import Lease
from holdfast.threads.machine import MAILBOX, NEWS, MailboxEvent, MailboxState, News, NewsEvent, after
from holdfast.threads.resolve.resolver import AttachedAgent, Resolver
from holdfast.threads.tools import Tools
from holdfast.threads.turns.run import TurnRun
from holdfast.threads.types import How

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 0.5
"""How long a part waits after an error before it ends, and is begun again."""
TURN, ERRAND = "turn:", "errand:"
"""How the names of such parts begin."""
_USE_SECONDS = 10.0


class HeldThread:
    """``leases`` has those of all threads that this daemon holds; this one is in there for as long as it is held."""

    def __init__(self, tools: Tools, resolver: Resolver, leases: dict[str, Lease], thread_id: str) -> None:
        self._tools = tools
        self._resolver = resolver
        self._leases = leases
        self._held: set[str] = set()
        self._still = asyncio.Lock()
        self._used: dict[str, float] = {}
        self.id = thread_id
        self.lease = Lease(thread_id, tools.node, 0)
        self.state = MailboxState.WAITING
        self.why_lost = ""
        self.news = News.UNREAD
        self.bell = asyncio.Event()
        """Set when there is something to look at, or something has ended."""
        self.runs: dict[str, TurnRun] = {}
        """By channel."""
        self.parts: dict[str, asyncio.Task[None]] = {}
        self.resolving: dict[str, asyncio.Task[AttachedAgent]] = {}

    # -- its lease and its news --------------------------------------------------------------------------------------

    def take(self, lease: Lease) -> None:
        self._move(MailboxEvent.TAKE)
        self.lease = self._leases[self.id] = lease

    def lose(self, why: str) -> None:
        """Note that another daemon may have it now."""
        self._move(MailboxEvent.LOSE)
        self.why_lost = why

    def leave(self) -> None:
        self._move(MailboxEvent.LEAVE)
        self._leases.pop(self.id, None)

    def ring(self) -> None:
        """Say that there may be something to do."""
        self._hear(NewsEvent.RING)

    def knock(self) -> None:
        """Say that there is something to do: if this comes too late, another mailbox must see to it."""
        self._hear(NewsEvent.KNOCK)

    def look_again(self) -> None:
        """Say that something may begin now that could not before."""
        self.forget_look()
        self.bell.set()

    def forget_look(self) -> None:
        """Note that the last look has not seen all: the next one, whenever it comes, reads everything."""
        self.news = after(NEWS, self.news, NewsEvent.LOOK_AGAIN)

    def look(self) -> News:
        """Return what there is to look at; from now on, only what comes later is news."""
        before, self.news = self.news, after(NEWS, self.news, NewsEvent.LOOK)
        return before

    def _move(self, event: MailboxEvent) -> None:
        self.state = after(MAILBOX, self.state, event)

    def _hear(self, event: NewsEvent) -> None:
        self.news = after(NEWS, self.news, event)
        self.bell.set()

    # -- its agents --------------------------------------------------------------------------------------------------

    async def use(self, channel: str) -> tuple[AttachedAgent, bool]:
        """Attach for somebody who uses the agent without a message; the second value says whether that was written."""
        noted = await self.note_use(channel)
        return await self.attach(channel), noted

    async def note_use(self, channel: str) -> bool:
        """Write, now and then, that the channel is used; return whether it did. Idleness is counted in minutes."""
        now = asyncio.get_running_loop().time()
        if now - self._used.get(channel, float("-inf")) < _USE_SECONDS:
            return False
        await self._tools.store.threads.touch(self.id, channel)
        self._used[channel] = now
        return True

    async def attach(self, channel: str) -> AttachedAgent:
        """Return the agent that a turn is talking to; else resolve."""
        run = self.runs.get(channel)
        if run is not None and run.attached is not None:
            return replace(run.attached, how=How.REUSED, why=None, changed=False)
        return await self.resolve(channel)

    async def resolve(self, channel: str) -> AttachedAgent:
        """Resolve the thread for a channel. Callers at the same time share one, which goes on when they go away."""
        async with self._still:
            task = self.resolving.get(channel)
            if task is None:
                work = self._resolver.resolve(self.lease, channel, in_turn=self._in_turn(channel))
                # Its error counts as seen: whoever still waits has it, and it is in the log and in the row.
                task = self.resolving[channel] = seen(asyncio.create_task(work))
                task.add_done_callback(partial(self._resolved, channel))
        return await asyncio.shield(task)

    def _in_turn(self, channel: str) -> bool:
        """Say whether the channel's agent may be at work. A turn that has failed and takes breath is not over."""
        run = self.runs.get(channel)
        return run.was_asked if run is not None else f"{TURN}{channel}" in self.parts

    def _resolved(self, channel: str, _task: "asyncio.Task[AttachedAgent]") -> None:
        del self.resolving[channel]
        self.bell.set()

    # -- its turns ---------------------------------------------------------------------------------------------------

    def is_busy(self, channel: str) -> bool:
        """Say whether no turn may begin there: also while one that failed takes breath, until its task is gone."""
        held = self._still.locked() or channel in self._held
        return held or channel in self.runs or f"{TURN}{channel}" in self.parts

    @contextlib.contextmanager
    def held(self, channel: str) -> Iterator[None]:
        """Let no turn begin in the channel meanwhile."""
        if channel in self._held:
            raise WrongState("something else is being done to this channel; ask again in a moment")
        self._held.add(channel)
        try:
            yield
        finally:
            self._held.discard(channel)
            self.look_again()

    @contextlib.asynccontextmanager
    async def standstill(self) -> AsyncIterator[None]:
        """Let no turn begin and nothing be resolved meanwhile, in any channel."""
        async with self._still:
            if self.resolving:
                await asyncio.wait(list(self.resolving.values()))
            try:
                yield
            finally:
                self.look_again()

    async def end_turns(self) -> None:
        """Stop working on its turns, write nothing, and begin none: the thread is going away."""
        self._move(MailboxEvent.CLOSE)
        await cancel_and_wait(*(task for name, task in self.parts.items() if name.startswith(TURN)))

    def stay(self) -> None:
        """Go on: the thread does not go away after all."""
        self._move(MailboxEvent.STAY)
        self.look_again()

    # -- the parts of the work ---------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Coroutine[None, None, None], context: contextvars.Context | None = None) -> None:
        """Begin a part, if it is not under way already."""
        if name in self.parts:
            work.close()
            return
        self.parts[name] = asyncio.create_task(self._guard(name, work), context=context)

    async def _guard(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run a part so that no error is lost. A lost lease ends all parts; after other errors the work is repeated."""
        try:
            await work
        except (StaleRow, ThreadNotFound) as error:
            self.lose(error.message)
        except HoldfastError as error:
            log.warning("thread.work.failed", thread_id=self.id, work=name, code=error.code, error=error.message)
            await self._tools.sleep(AGAIN_SECONDS)
        except Exception:
            log.exception("thread.work.failed", thread_id=self.id, work=name)
            await self._tools.sleep(AGAIN_SECONDS)
        finally:
            del self.parts[name]
            if not name.startswith(ERRAND):
                self.forget_look()  # the end of anything else may let something begin
            self.bell.set()
