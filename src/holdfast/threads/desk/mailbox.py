"""One thread's work in this daemon: it takes the lease, begins turns (one at a time per channel), and has errands done.

It lives for as long as there is something to do. Messages and requests come by way of the store, from any daemon; the
bell rings when there may be some. It cannot let go of the lease while something is left: the store sees to that.
"""

import asyncio
import contextvars
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import structlog

from holdfast.concurrency import cancel_and_wait
from holdfast.errors import Conflict, DiskFull, HoldfastError, StaleRow, ThreadNotFound, Unavailable, WrongState
from holdfast.records.threads import Lease, MessageRow, Mode, RequestRow, ThreadRow, TurnRow
from holdfast.store.threads.leases import ThreadLeases
from holdfast.threads.desk.errands import Errand, Revert
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.desk.thread import AGAIN_SECONDS, ERRAND, TURN, HeldThread
from holdfast.threads.desk.work import Work
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.machine import MailboxState, News
from holdfast.threads.resolve.resolver import Resolver
from holdfast.threads.tools import Tools, new_id
from holdfast.threads.turns.run import TurnRun
from holdfast.threads.types import IdlePolicy

log = structlog.get_logger(__name__)

R = TypeVar("R")
_REST = "rest"
_MOST_ABANDONED = 200
_BREATH_SECONDS = 0.01
"""Whatever goes wrong, this never becomes a busy loop."""


class Elsewhere(Exception):
    """Another daemon works on this thread."""


class Left(Elsewhere):
    """Nobody does: its work was done in the moment in which this came."""


class Mailbox:
    """``run`` is one task; the others may be called from any."""

    def __init__(self, tools: Tools, hosts: Hosts, files: ThreadFileService, work: Work, thread: HeldThread) -> None:
        self._tools = tools
        self._hosts = hosts
        self._files = files
        self._work = work
        self._asked: list[tuple[Errand[Any], asyncio.Future[Any], contextvars.Context]] = []
        self._inbox = -1
        """How many messages and requests there were at the last look."""
        self._rest: IdlePolicy | None = None
        """Of a thread that goes to sleep as soon as nothing is left to do."""
        self.thread = thread

    def ask(self, errand: Errand[R]) -> "asyncio.Future[R]":
        """Have an errand done for a caller in this process. What is logged on the way is about the caller's request,
        unlike all else here."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.append((errand, result, contextvars.copy_context()))
        self.thread.bell.set()
        return result

    # -- the task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until nothing is left to do. Leaves at once if the thread is, or becomes, another daemon's."""
        try:
            await self._run()
        except (Conflict, StaleRow, ThreadNotFound) as error:
            self._refuse(Elsewhere() if not isinstance(error, ThreadNotFound) else error)
            if self.thread.state.served and not isinstance(error, StaleRow | ThreadNotFound):
                raise  # it was ours: something else is wrong
        except BaseException as error:
            self._refuse(error if isinstance(error, HoldfastError) else Elsewhere())
            raise

    def leave(self) -> bool:
        """Nobody listens here any more: who has asked too late asks again. Returns whether another mailbox must look
        at what came too late."""
        self.thread.leave()
        self._refuse(Left())
        return self.thread.news.knocked and self.thread.state.served

    def _refuse(self, error: Exception) -> None:
        for _errand, result, _context in self._asked:
            if not result.done():
                result.set_exception(error)
        self._asked.clear()

    async def _run(self) -> None:
        thread, store, ttl = self.thread, self._tools.store, self._tools.settings.lease_seconds
        if not await self._hosts.serves(await store.threads.get(thread.id)):
            raise Conflict("its sandbox is on another host")
        began = asyncio.get_running_loop().time()
        thread.take((await store.leases.take(thread.id, owner=self._tools.node, ttl=ttl)).lease)
        keeper = asyncio.create_task(_keep_lease(store.leases, thread.lease, ttl=ttl, ends_at=began + ttl))
        try:
            with store.watch.listening(thread.id, thread.ring):
                await self._serve(keeper)
        except Exception:
            await self._stop(keeper)
            await self._let_go()
            raise
        finally:
            await self._stop(keeper)

    async def _let_go(self) -> None:
        """Give up the lease after an error of our own: somebody, perhaps we, takes the thread up at once."""
        try:
            async with asyncio.timeout(self._tools.settings.lease_seconds):
                await self._tools.store.leases.release(self.thread.lease, if_done=False)
        except (HoldfastError, TimeoutError) as error:
            log.warning("thread.lease.kept", thread_id=self.thread.id, error=str(error), next="it runs out by itself")

    async def _serve(self, keeper: "asyncio.Task[str]") -> None:
        thread = self.thread
        while True:
            thread.bell.clear()
            if not await self._try_to_look():
                await self._wait(keeper, AGAIN_SECONDS)
            elif thread.parts or self._asked or thread.resolving:
                await self._wait(keeper)
            elif self._rest is not None:
                policy, self._rest = self._rest, None
                thread.spawn(_REST, self._work.rest(thread, policy))
            elif not await self._rung(keeper):
                self._check_lease(keeper)  # a part may have lost it while we looked
                if await self._tools.write(lambda: self._tools.store.leases.release(thread.lease)):
                    return
                thread.forget_look()
                await asyncio.sleep(_BREATH_SECONDS)

    async def _try_to_look(self) -> bool:
        """Look for work; return False if the database is away. What runs goes on, and the keeper watches the lease."""
        try:
            await self._look()
        except (Unavailable, DiskFull) as error:
            log.warning("thread.mailbox.waits", thread_id=self.thread.id, error=error.message)
            self.thread.forget_look()
            return False
        return True

    async def _rung(self, keeper: "asyncio.Task[str]") -> bool:
        """Wait a little after all was done; return whether something came."""
        seconds = 0.0 if self.thread.state is MailboxState.CLOSING else self._tools.settings.linger_seconds
        return seconds > 0 and await self._wait(keeper, seconds)

    async def _wait(self, keeper: "asyncio.Task[str]", seconds: float | None = None) -> bool:
        """Wait until the bell rings or something ends; return False if nothing did in time."""
        thread = self.thread
        bell = asyncio.create_task(thread.bell.wait())
        try:
            done, _ = await asyncio.wait(
                [bell, keeper, *thread.parts.values()], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            bell.cancel()
        self._check_lease(keeper)
        return bool(done)

    def _check_lease(self, keeper: "asyncio.Task[str]") -> None:
        """Raise ``StaleRow`` if the lease is lost, and say so in the log and the metrics."""
        thread = self.thread
        if keeper.done():
            thread.lose(keeper.result())
        if thread.state is MailboxState.LOST:
            self._tools.metrics.leases_lost.inc()
            log.warning("thread.lease.lost", thread_id=thread.id, why=thread.why_lost)
            raise StaleRow(f"the lease of {thread.id} is lost: {thread.why_lost}")

    async def _stop(self, keeper: "asyncio.Task[str]") -> None:
        """Stop all parts. What is under way stays as it is written; whoever takes over goes on with it."""
        await cancel_and_wait(keeper, *self.thread.parts.values(), *self.thread.resolving.values())

    # -- what there is to do -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Begin what is not begun: first turns, then what may be asked of them. Who asks in this process does not wait
        for a look into the store, if that has no news."""
        news = self.thread.look()
        if news is not News.QUIET:
            await self._look_into_store(unread=news.unread)
        while self._asked:
            errand, result, context = self._asked.pop(0)
            self.thread.spawn(f"{ERRAND}{id(result)}", self._work.here(self.thread, errand, result), context)

    async def _look_into_store(self, *, unread: bool) -> None:
        """Begin what the store has. Most rings only say that a turn goes on: the number of what has come tells."""
        store, thread = self._tools.store, self.thread
        inbox = (await store.watch.marks([thread.id])).get(thread.id, (0, 0))[1]
        if (inbox == self._inbox and not unread) or thread.state is not MailboxState.SERVING:
            return
        self._inbox = inbox
        for turn in await store.turns.unfinished(thread.id):
            if not thread.is_busy(turn.channel):
                self._tools.metrics.takeovers.inc()
                self._begin(turn)
        requests = await store.thread_requests.open(thread.id)
        self._take_on(one for one in requests if one.kind == Revert.kind)  # one half done comes before the next turn
        for message in await store.messages.queued(thread.id):
            try:
                await self._take_up(message)
            except WrongState as error:  # a turn has begun, or ended, in this moment; its end lets us look again
                log.info("thread.message.waits", thread_id=thread.id, message_id=message.id, error=error.message)
        self._take_on(one for one in requests if one.kind != Revert.kind)

    def _take_on(self, requests: Iterable[RequestRow]) -> None:
        for request in requests:
            self.thread.spawn(f"request:{request.id}", self._work.of_another(self.thread, request))

    async def _take_up(self, message: MessageRow) -> None:
        thread, turns = self.thread, self._tools.store.turns
        run = thread.runs.get(message.channel)
        if not thread.is_busy(message.channel):
            turn = await turns.begin(thread.lease, message.channel, new_id("trn"))
            if turn is not None:
                self._begin(turn)
        elif run is not None and message.mode == Mode.STEER and run.can_be_steered:
            taken = await turns.steer(thread.lease, run.turn.id, message.id)
            if taken is not None:
                thread.spawn(f"steer:{message.id}", run.steer(taken))

    def _begin(self, turn: TurnRow) -> None:
        thread = self.thread
        attach = partial(thread.resolve, turn.channel)
        run = TurnRun(self._tools, self._files, thread.lease, turn, attach=attach, on_accepted=thread.look_again)
        thread.runs[turn.channel] = run
        thread.spawn(f"{TURN}{turn.channel}", self._run_turn(turn.channel, run))

    async def _run_turn(self, channel: str, run: TurnRun) -> None:
        try:
            await run.run()
            self._rest = run.idle if run.idle is not None and run.idle.at_once else None
        finally:
            if self.thread.runs.get(channel) is run:
                del self.thread.runs[channel]


class Office:
    """All mailboxes of this daemon, and how to reach whoever has a thread that is not ours.

    Use ``close`` at the end: turns under way are left as they are, for the next daemon.

    ``leases`` always has those that this daemon holds, by thread.
    """

    def __init__(
        self, tools: Tools, hosts: Hosts, resolver: Resolver, files: ThreadFileService, leases: dict[str, Lease]
    ) -> None:
        self._tools = tools
        self._hosts = hosts
        self._resolver = resolver
        self._files = files
        self._leases = leases
        self._work = Work(tools)
        self._boxes: dict[str, Mailbox] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def ring(self, thread_id: str) -> None:
        """Have a mailbox look at this thread: there is something to do."""
        self._box(thread_id).thread.knock()

    def works_on(self, thread_id: str) -> bool:
        return thread_id in self._boxes

    def _box(self, thread_id: str) -> Mailbox:
        if self._closed:
            raise Unavailable("the daemon is stopping; ask again when it is back")
        box = self._boxes.get(thread_id)
        if box is None:
            thread = HeldThread(self._tools, self._resolver, self._leases, thread_id)
            box = self._boxes[thread_id] = Mailbox(self._tools, self._hosts, self._files, self._work, thread)
            # A context of its own: it outlives the request that rang first, and the log must not name that one.
            self._tasks[thread_id] = asyncio.create_task(
                self._run(box), name=f"mailbox:{thread_id}", context=contextvars.Context()
            )
        return box

    async def _run(self, box: Mailbox) -> None:
        thread_id = box.thread.id
        try:
            await box.run()
        except HoldfastError as error:
            log.warning("thread.mailbox.failed", thread_id=thread_id, code=error.code, error=error.message)
        except Exception:
            log.exception("thread.mailbox.failed", thread_id=thread_id)
        finally:
            del self._boxes[thread_id], self._tasks[thread_id]
            if box.leave() and not self._closed:
                self.ring(thread_id)

    async def ask(self, row: ThreadRow, errand: Errand[R]) -> R:
        """Have an errand done by whoever holds the thread, or may: here if possible, else by way of the store."""
        while self.works_on(row.id) or await self._hosts.serves(row):
            asked = self._box(row.id).ask(errand)
            try:
                return await asked
            except Left:
                continue
            except Elsewhere:
                break
        return await self.ask_in_writing(row, errand)

    async def ask_in_writing(self, row: ThreadRow, errand: Errand[R]) -> R:
        """Ask by way of the store: it is done, perhaps twice, also if whoever does it, here or there, dies."""
        requests, bell = self._tools.store.thread_requests, asyncio.Event()
        with self._tools.store.watch.listening(row.id, bell.set):
            request, seen = await requests.put(row.id, id=new_id("req"), kind=errand.kind, data=errand.to_json())
            if seen.lease_owner in (None, self._tools.node):  # let go of in this moment, or ours
                self.ring(row.id)
            try:
                async with asyncio.timeout(self._tools.settings.ask_seconds):
                    while True:
                        bell.clear()
                        request = await requests.get(request.id)
                        if request.done_at is not None:
                            return errand.read_result(request.result or {})
                        await bell.wait()
            except TimeoutError:
                raise Unavailable(
                    f"who serves thread {row.key} did not answer within {self._tools.settings.ask_seconds:g} s; "
                    "it is done as soon as they can"
                ) from None

    async def look_for_work(self) -> None:
        """Take up threads that have work and nobody who does it: of a daemon that is gone, or stored by another."""
        nodes = await self._hosts.served()
        for row in await self._tools.store.leases.abandoned(limit=_MOST_ABANDONED, nodes=nodes):
            if not self.works_on(row.id) and await self._hosts.serves(row):
                self.ring(row.id)

    async def close(self) -> None:
        self._closed = True
        await cancel_and_wait(*self._tasks.values())
        try:
            await self._tools.store.leases.release_all(self._tools.node)
        except HoldfastError as error:
            log.warning("thread.leases.kept", error=error.message, next="they run out by themselves")


async def _keep_lease(leases: ThreadLeases, lease: Lease, *, ttl: float, ends_at: float) -> str:
    """Renew a lease for ever; return, with the reason, when it is lost, or may be.

    Every write names the lease, so a daemon that has lost it changes nothing any more. It should also stop working, in
    the moment in which somebody else may have the thread. Time is this process's own, from before it asked: never later
    than the store's.
    """
    while True:
        await asyncio.sleep(ttl / 3)
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(ends_at):
                await leases.renew(lease, ttl=ttl)
            ends_at = began + ttl
        except (StaleRow, ThreadNotFound) as error:
            return error.message
        except TimeoutError:
            return "it could not be renewed in time"
        except HoldfastError as error:
            log.warning("thread.lease.renew_failed", thread_id=lease.thread_id, error=error.message)
            if asyncio.get_running_loop().time() >= ends_at:
                return f"it could not be renewed in time: {error.message}"
