"""All mailboxes of this daemon: whose bell to ring, and how to reach whoever has a thread that is not ours."""

import asyncio
import contextvars
from collections.abc import Mapping

import structlog

from holdfast.errors import HoldfastError, Unavailable
from holdfast.records.threads import Lease, ThreadRow
from holdfast.threads.desk.errands import Errands, raised
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.desk.mailbox import Elsewhere, Errand, Left, Mailbox
from holdfast.threads.files.files import ThreadFileService
from holdfast.threads.resolve.resolver import Resolver
from holdfast.threads.tools import Tools, new_id

log = structlog.get_logger(__name__)

_MOST_ABANDONED = 200


class Office:
    """Use ``close`` at the end: turns under way are left as they are, for the next daemon."""

    def __init__(self, tools: Tools, hosts: Hosts, resolver: Resolver, files: ThreadFileService) -> None:
        self._tools = tools
        self._hosts = hosts
        self._resolver = resolver
        self._files = files
        self._errands = Errands(tools)
        self._boxes: dict[str, Mailbox] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def ring(self, thread_id: str) -> None:
        """There may be something to do in this thread."""
        self._box(thread_id).knock()

    def works_on(self, thread_id: str) -> bool:
        return thread_id in self._boxes

    def lease_of(self, thread_id: str) -> Lease | None:
        """The lease that is held on a thread here; None if it is another daemon's, or nobody's."""
        box = self._boxes.get(thread_id)
        return box.lease if box is not None and box.served else None

    def _box(self, thread_id: str) -> Mailbox:
        if self._closed:
            raise Unavailable("the daemon is stopping; ask again when it is back")
        box = self._boxes.get(thread_id)
        if box is None:
            box = self._boxes[thread_id] = Mailbox(
                self._tools, self._hosts, self._resolver, self._files, self._errands, thread_id
            )
            # A context of its own: it outlives the request that rang first, and the log must not name that one.
            self._tasks[thread_id] = asyncio.create_task(
                self._run(box), name=f"mailbox:{thread_id}", context=contextvars.Context()
            )
        return box

    async def _run(self, box: Mailbox) -> None:
        try:
            await box.run()
        except HoldfastError as error:
            log.warning("thread.mailbox.failed", thread_id=box.thread_id, code=error.code, error=error.message)
        except Exception:
            log.exception("thread.mailbox.failed", thread_id=box.thread_id)
        finally:
            del self._boxes[box.thread_id], self._tasks[box.thread_id]
            box.leave()
            if box.knocked and box.served and not self._closed:
                self.ring(box.thread_id)

    async def ask(self, row: ThreadRow, kind: str, data: Mapping[str, object]) -> Mapping[str, object]:
        """Have an errand done by whoever holds the thread, or may: here if possible, else by way of the store."""
        while self.works_on(row.id) or await self._hosts.serves(row):
            errand = Errand(kind, data)
            self._box(row.id).ask(errand)
            try:
                return await errand.result
            except Left:
                continue
            except Elsewhere:
                break
        return await self.ask_in_writing(row, kind, data)

    async def ask_in_writing(self, row: ThreadRow, kind: str, data: Mapping[str, object]) -> Mapping[str, object]:
        """By way of the store: it is done also if whoever does it, here or elsewhere, dies over it; then, once more."""
        requests, bell = self._tools.store.thread_requests, asyncio.Event()
        with self._tools.store.watch.listening(row.id, bell.set):
            request, seen = await requests.put(row.id, id=new_id("req"), kind=kind, data=data)
            if seen.lease_owner in (None, self._tools.node):  # let go of in this moment, or ours
                self.ring(row.id)
            try:
                async with asyncio.timeout(self._tools.settings.ask_seconds):
                    while True:
                        bell.clear()
                        request = await requests.get(request.id)
                        if request.done_at is not None:
                            return raised(request.result or {})
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
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        try:
            await self._tools.store.leases.release_all(self._tools.node)
        except HoldfastError as error:
            log.warning("thread.leases.kept", error=error.message, next="they run out by themselves")
