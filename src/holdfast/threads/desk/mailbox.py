"""One thread's work in this daemon: its lease, its turns (one at a time per channel), and what is asked of them.

It lives for as long as there is something to do. Messages and requests come by way of the store, from any daemon; the
bell rings when there may be some. It cannot let go of the lease while something is left: the store sees to that.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from holdfast.errors import Conflict, DiskFull, HoldfastError, StaleRow, ThreadNotFound, Unavailable, WrongState
from holdfast.records.threads import Lease, MessageRow, Mode, RequestRow, ThreadRow, TurnRow
from holdfast.threads.desk.errands import Errands
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.desk.leases import LeaseKeeper
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.resolve.resolver import Attached, Resolver
from holdfast.threads.tools import Tools, new_id, retry_write
from holdfast.threads.turns.run import TurnRun
from holdfast.threads.types import How, IdlePolicy

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 0.5
_TURN = "turn:"
_ERRAND = "errand:"
_REST = "rest"
_USE_SECONDS = 10.0
_BREATH_SECONDS = 0.01
"""Whatever goes wrong, this never becomes a busy loop."""


class Elsewhere(Exception):
    """Another daemon works on this thread."""


class Left(Elsewhere):
    """Nobody does: its work was done in the moment in which this came."""


@dataclass(frozen=True, slots=True)
class Errand:
    """Something that was asked for by a caller in this process, who waits for it."""

    kind: str
    data: Mapping[str, object]
    result: "asyncio.Future[Mapping[str, object]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    """The caller's: what is logged on the way is about that request, unlike all else here."""


class Mailbox:
    """``run`` is one task; the others may be called from any."""

    def __init__(
        self, tools: Tools, hosts: Hosts, resolver: Resolver, files: ThreadFileService, errands: Errands, thread_id: str
    ) -> None:
        self._tools = tools
        self._hosts = hosts
        self._resolver = resolver
        self._files = files
        self._errands = errands
        self._bell = asyncio.Event()
        self._asked: list[Errand] = []
        self._resolving: dict[str, asyncio.Task[Attached]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lost: str | None = None
        self._closing = False
        self._held: set[str] = set()
        self._still = asyncio.Lock()
        self._inbox = -1
        self._news = True
        """Whether the store may have something; who asks in this process need not wait for a look into it."""
        self._noted: dict[str, float] = {}
        self._rest: IdlePolicy | None = None
        """Of a thread that goes to sleep as soon as nothing is left to do."""
        self.thread_id = thread_id
        self.lease = Lease(thread_id, tools.node, 0)
        self.runs: dict[str, TurnRun] = {}
        self.knocked = False
        self.served = False
        """Whether it ever had the lease."""

    def ring(self) -> None:
        """There may be something to do."""
        self._news = True
        self._bell.set()

    def knock(self) -> None:
        """There is something to do: if this comes too late, another mailbox must see to it."""
        self.knocked = True
        self.ring()

    def ask(self, errand: Errand) -> None:
        self._asked.append(errand)
        self._bell.set()

    async def use(self, channel: str) -> tuple[Attached, bool]:
        """Attach, for somebody who uses the channel's agent without a message; and whether that was written."""
        noted = await self.note_use(channel)
        return await self.attach(channel), noted

    async def note_use(self, channel: str) -> bool:
        """Now and then: idleness is counted in minutes."""
        now = asyncio.get_running_loop().time()
        if now - self._noted.get(channel, float("-inf")) < _USE_SECONDS:
            return False
        await self._tools.store.threads.touch(self.thread_id, channel)
        self._noted[channel] = now
        return True

    async def attach(self, channel: str) -> Attached:
        """The agent that a turn is talking to; else resolve."""
        run = self.runs.get(channel)
        if run is not None and run.attached is not None:
            return replace(run.attached, how=How.REUSED, why=None, changed=False)
        return await self._resolve(channel)

    async def _resolve(self, channel: str) -> Attached:
        """Callers at the same time share one, which goes on when they go away."""
        async with self._still:
            task = self._resolving.get(channel)
            if task is None:
                work = self._resolver.resolve(self.lease, channel, in_turn=self._in_turn(channel))
                task = self._resolving[channel] = asyncio.create_task(work)
                task.add_done_callback(partial(self._resolved, channel))
        return await asyncio.shield(task)

    def _in_turn(self, channel: str) -> bool:
        """Whether the channel's agent may be at work. A turn that has failed and takes breath is not over."""
        run = self.runs.get(channel)
        return run.was_asked if run is not None else f"{_TURN}{channel}" in self._tasks

    def _resolved(self, channel: str, task: "asyncio.Task[Attached]") -> None:
        del self._resolving[channel]
        if not task.cancelled():
            task.exception()  # whoever still waits has it; if nobody does, it is in the log and in the row
        self._bell.set()

    async def end_turns(self) -> None:
        """The thread is going away: stop working on them, write nothing, and begin none."""
        self._closing = True
        turns = [task for name, task in self._tasks.items() if name.startswith(_TURN)]
        for task in turns:
            task.cancel()
        if turns:
            await asyncio.wait(turns)

    @contextlib.contextmanager
    def held(self, channel: str) -> Iterator[None]:
        """Meanwhile no turn begins in the channel."""
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
        """Meanwhile no turn begins and nothing is resolved, in any channel."""
        async with self._still:
            if self._resolving:
                await asyncio.wait(list(self._resolving.values()))
            try:
                yield
            finally:
                self.look_again()

    def go_on(self) -> None:
        """It stays after all."""
        self._closing = False
        self.look_again()

    # -- the task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until nothing is left to do. Leaves at once if the thread is, or becomes, another daemon's."""
        try:
            await self._run()
        except (Conflict, StaleRow, ThreadNotFound) as error:
            self._refuse(Elsewhere() if not isinstance(error, ThreadNotFound) else error)
            if self.served and not isinstance(error, StaleRow | ThreadNotFound):
                raise  # it was ours: something else is wrong
        except BaseException as error:
            self._refuse(error if isinstance(error, HoldfastError) else Elsewhere())
            raise

    def leave(self) -> None:
        """Nobody listens here any more: who has asked too late asks again."""
        self._refuse(Left())

    def _refuse(self, error: Exception) -> None:
        for errand in self._asked:
            if not errand.result.done():
                errand.result.set_exception(error)
        self._asked.clear()

    async def _run(self) -> None:
        store, ttl = self._tools.store, self._tools.settings.lease_seconds
        await self._check(await store.threads.get(self.thread_id))
        began = asyncio.get_running_loop().time()
        row = await store.leases.take(self.thread_id, owner=self._tools.node, ttl=ttl)
        self.lease, self.served = row.lease, True
        keeper = asyncio.create_task(LeaseKeeper(store.leases, self.lease, ttl=ttl, taken_at=began).keep())
        try:
            with store.watch.listening(self.thread_id, self.ring):
                await self._serve(keeper)
        except Exception:
            await self._stop(keeper)
            await self._let_go()
            raise
        finally:
            await self._stop(keeper)

    async def _let_go(self) -> None:
        """After an error of our own: somebody, perhaps we, takes it up again without waiting for the lease to end."""
        try:
            async with asyncio.timeout(self._tools.settings.lease_seconds):
                await self._tools.store.leases.release(self.lease, if_done=False)
        except (HoldfastError, TimeoutError) as error:
            log.warning("thread.lease.kept", thread_id=self.thread_id, error=str(error), next="it runs out by itself")

    async def _check(self, row: ThreadRow) -> None:
        if not await self._hosts.serves(row):
            raise Conflict("its sandbox is on another host")

    async def _serve(self, keeper: "asyncio.Task[str]") -> None:
        while True:
            self._bell.clear()
            self.knocked = False
            if not await self._try_to_look():
                await self._wait(keeper, _AGAIN_SECONDS)
            elif self._tasks or self._asked or self._resolving:
                await self._wait(keeper)
            elif self._rest is not None:
                policy, self._rest = self._rest, None
                self._spawn(_REST, self._errands.rest(self, policy))
            elif not await self._rung(keeper):
                if await retry_write(lambda: self._tools.store.leases.release(self.lease), self._tools.sleep):
                    return
                self._forget_inbox()
                await asyncio.sleep(_BREATH_SECONDS)

    async def _try_to_look(self) -> bool:
        """Look for work; return False if the database is away. What runs goes on, and the keeper watches the lease."""
        try:
            await self._look()
        except (Unavailable, DiskFull) as error:
            log.warning("thread.mailbox.waits", thread_id=self.thread_id, error=error.message)
            self._forget_inbox()
            return False
        return True

    async def _rung(self, keeper: "asyncio.Task[str]") -> bool:
        """Whether something comes soon after all was done."""
        seconds = 0.0 if self._closing else self._tools.settings.linger_seconds
        return seconds > 0 and await self._wait(keeper, seconds)

    async def _wait(self, keeper: "asyncio.Task[str]", seconds: float | None = None) -> bool:
        """Until the bell rings or something ends; False if nothing did in time."""
        bell = asyncio.create_task(self._bell.wait())
        try:
            done, _ = await asyncio.wait(
                [bell, keeper, *self._tasks.values()], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            bell.cancel()
        if keeper.done():
            self._lost = keeper.result()
        if self._lost is not None:
            self._tools.metrics.leases_lost.inc()
            log.warning("thread.lease.lost", thread_id=self.thread_id, why=self._lost)
            raise StaleRow(f"the lease of {self.thread_id} is lost: {self._lost}")
        return bool(done)

    async def _stop(self, keeper: "asyncio.Task[str]") -> None:
        """Whatever is under way stays as it is written; who takes over goes on with it."""
        tasks: list[asyncio.Task[Any]] = [keeper, *self._tasks.values(), *self._resolving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    # -- what there is to do -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Begin what is not begun: first turns, then what may be asked of them."""
        if self._news:
            self._news = False
            await self._look_into_store()
        while self._asked:
            errand = self._asked.pop(0)
            work = self._errands.here(self, errand.kind, errand.data, errand.result)
            self._spawn(f"{_ERRAND}{id(errand)}", work, errand.context)

    async def _look_into_store(self) -> None:
        """Most rings only say that a turn goes on: the number of messages and requests so far tells."""
        store = self._tools.store
        inbox = (await store.watch.marks([self.thread_id])).get(self.thread_id, (0, 0))[1]
        if inbox == self._inbox or self._closing:
            return
        self._inbox = inbox  # before anything is read: who says meanwhile that one must look again is heard
        for turn in await store.turns.unfinished(self.thread_id):
            if not self._busy(turn.channel):
                self._tools.metrics.takeovers.inc()
                self._begin(turn)
        requests = await store.thread_requests.open(self.thread_id)
        self._take_on(one for one in requests if one.kind == "revert")  # one half done comes before the next turn
        for message in await store.messages.queued(self.thread_id):
            try:
                await self._take_up(message)
            except WrongState as error:  # a turn has begun, or ended, in this moment; its end lets us look again
                log.info("thread.message.waits", thread_id=self.thread_id, message_id=message.id, error=error.message)
        self._take_on(one for one in requests if one.kind != "revert")

    def _take_on(self, requests: Iterable[RequestRow]) -> None:
        for request in requests:
            self._spawn(f"request:{request.id}", self._errands.of_another(self, request))

    async def _take_up(self, message: MessageRow) -> None:
        run = self.runs.get(message.channel)
        turns = self._tools.store.turns
        if not self._busy(message.channel):
            turn = await turns.begin(self.lease, message.channel, new_id("trn"))
            if turn is not None:
                self._begin(turn)
        elif run is not None and message.mode == Mode.STEER and run.can_be_steered:
            taken = await turns.steer(self.lease, run.turn.id, message.id)
            if taken is not None:
                self._spawn(f"steer:{message.id}", run.steer(taken))

    def _busy(self, channel: str) -> bool:
        """Also with a turn that has just failed and takes breath: until its task is gone there cannot be another."""
        held = self._still.locked() or channel in self._held
        return held or channel in self.runs or f"{_TURN}{channel}" in self._tasks

    def _begin(self, turn: TurnRow) -> None:
        run = TurnRun(self._tools, self._files, self.lease, turn, partial(self._resolve, turn.channel))
        run.on_accepted = self.look_again
        self.runs[turn.channel] = run
        self._spawn(f"{_TURN}{turn.channel}", self._run_turn(turn.channel, run))

    async def _run_turn(self, channel: str, run: TurnRun) -> None:
        try:
            await run.run()
            self._rest = run.idle if run.idle is not None and run.idle.at_once else None
        finally:
            if self.runs.get(channel) is run:
                del self.runs[channel]

    def look_again(self) -> None:
        self._forget_inbox()
        self._bell.set()

    def _forget_inbox(self) -> None:
        self._inbox, self._news = -1, True

    def _spawn(self, name: str, work: Coroutine[None, None, None], context: contextvars.Context | None = None) -> None:
        if name in self._tasks:
            work.close()
            return
        self._tasks[name] = asyncio.create_task(self._guard(name, work), context=context)

    async def _guard(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run a part so that no error is lost. A lost lease ends all parts; after other errors the work is repeated."""
        try:
            await work
        except (StaleRow, ThreadNotFound) as error:
            self._lost = error.message
        except HoldfastError as error:
            log.warning("thread.work.failed", thread_id=self.thread_id, work=name, code=error.code, error=error.message)
            await self._tools.sleep(_AGAIN_SECONDS)
        except Exception:
            log.exception("thread.work.failed", thread_id=self.thread_id, work=name)
            await self._tools.sleep(_AGAIN_SECONDS)
        finally:
            del self._tasks[name]
            if not name.startswith(_ERRAND):
                self._forget_inbox()  # the end of anything else may let something begin
            self._bell.set()
