"""The transport to an agent behind sandbox-agent, in the form that ACP's adapter needs: lines in and out, with offsets.

The offset of a line is the id of its event; each server counts its events from 1. Instead of a write to stdin there is
a POST. The server does not say what it has received, so a note in the journal counts as arrived from the moment that
the POST may have reached it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.agents.acp.messages import is_answer, new_id, ping
from holdfast.agents.base import Place
from holdfast.agents.http import Server
from holdfast.agents.sandbox_agent.server import TOKEN_FILE, AcpServer, locate, message_of
from holdfast.agents.sandbox_agent.tap import Cuts, number_of, open_tap, read_tapped, with_gaps
from holdfast.agents.supervisor import (
    AgentProcess,
    Delivery,
    Journal,
    JsonObject,
    OutputLine,
    Supervisor,
    Timeouts,
    parse,
)
from holdfast.agents.supervisor.home import write_file
from holdfast.agents.supervisor.journal import stdin_lock
from holdfast.agents.supervisor.output import OutputItem, answer_within, find_process, require_running
from holdfast.concurrency import Bounded, Broadcast, cancel_and_wait, next_or_silence
from holdfast.errors import AgentDown, AgentError, FileMissing, HoldfastError, ProcessNotFound
from holdfast.sessions.use.follow import Attached
from holdfast.sessions.use.processes import ProcessView

EXITED = "_adapter/agent_exited"
"""The server's own message that the agent behind it is gone."""
LAST = 1 << 40
"""The offset of what comes after all events."""
SENT = "sent"
"""A key in a note which means that the server has certainly received the request."""
_HEARD_SECONDS = 1.0
"""After this time a request counts as received, if the connection still stands."""
_REMEMBERED = 1000
_RETRIES = 5
_REFUSED = -32603
_RETRY_SECONDS = 0.1

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class RefusedRequest:
    """A request that the server itself has refused, so that the agent behind it never got it."""

    name: str
    request: JsonObject
    error: AgentError

    @property
    def line(self) -> JsonObject:
        """The refusal in the form of an answer of the agent."""
        return {"jsonrpc": "2.0", "id": self.request.get("id"), "error": {"code": _REFUSED, "message": str(self.error)}}


class RefusedRequests:
    """The refusals of one server; everyone who follows the server gets them."""

    def __init__(self) -> None:
        self.all: list[RefusedRequest] = []
        self._news = Broadcast()

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.all}

    def add(self, refusal: RefusedRequest) -> None:
        self.all.append(refusal)
        self._news.send()

    async def next(self, told: set[RefusedRequest]) -> RefusedRequest:
        """Wait for a refusal that is not in ``told``, add it there and return it."""
        while True:
            for one in self.all:
                if one not in told:
                    told.add(one)
                    return one
            await self._news.wait()


class HttpSupervisor(Supervisor):
    """Starts and ends the server as any process; all else goes over HTTP."""

    def __init__(self, agent: str, behind: str, timeouts: Timeouts | None = None) -> None:
        super().__init__(agent, timeouts)
        self._behind = behind
        self._servers = Bounded[Key, Server](_REMEMBERED)
        self._seen = Bounded[Key, int](_REMEMBERED)
        self._uncut_since = Bounded[Key, int](_REMEMBERED)
        """This daemon has read all events after that number live, so no death of a daemon can have caused a cut
        there."""
        self._held: dict[str, asyncio.Task[None]] = {}
        self._refusals = Bounded[Key, RefusedRequests](_REMEMBERED)
        self._tapped = Bounded[Key, None](_REMEMBERED)

    def journal(self, kind: str) -> Journal:
        if kind not in self._journals:
            self._journals[kind] = PostJournal(self, kind)
        return self._journals[kind]

    # -- what it says --------------------------------------------------------------------------------------------------

    async def follow(
        self, place: Place, process_id: str, offset: int, quiet: float
    ) -> AsyncGenerator[OutputItem, None]:
        """Follow the events; ``CUT`` and other notices of the runner come before the line that followed them."""
        key, cuts = (place.session_id, process_id), Cuts(place, process_id, offset)
        told = place.sandbox.processes.told(place.session_id)
        async with contextlib.aclosing(self._follow(place, process_id, offset, quiet)) as items:
            async for item in items:
                if isinstance(item, OutputLine):
                    is_uncut = self._uncut_since.get(key, LAST) <= offset
                    if not is_uncut or told != place.sandbox.processes.told(place.session_id):
                        for word in await cuts.before(item.start):
                            yield OutputLine(item.start, item.start, word)
                yield item

    async def _follow(
        self, place: Place, process_id: str, offset: int, quiet: float
    ) -> AsyncGenerator[OutputItem, None]:
        last, failures, told = offset, 0, set[RefusedRequest]()
        yield Attached()
        while True:
            view = await find_process(place, process_id)
            if view is None:
                return
            if not view.running:
                rest = await read_tapped(place, process_id, last, LAST)
                for kept in with_gaps(rest, last, rest[-1].end if rest else last + 1):
                    if isinstance(kept, int) or kept.message.get("method") != EXITED:
                        yield kept
                yield replace(view, written=LAST)
                return
            try:
                stream = _or_refusals(self._lines(place, view, last), self._refusals_of(place, process_id), told)
                async with contextlib.aclosing(next_or_silence(stream, quiet)) as items:
                    async for item in items:
                        if isinstance(item, RefusedRequest):
                            yield OutputLine(last, last, item.line)
                            continue
                        if isinstance(item, OutputLine):
                            last, failures = item.start, 0
                            if item.message.get("method") == EXITED:
                                yield replace(view, written=LAST)
                                return
                        yield item
            except AgentDown:
                self._uncut_since.pop((place.session_id, process_id), None)
                failures += 1
                if failures > _RETRIES:
                    raise
                await asyncio.sleep(_RETRY_SECONDS * failures)

    async def _lines(self, place: Place, view: ProcessView, after: int) -> AsyncGenerator[OutputLine | int, None]:
        """Yield the events after that number; a plain number means that so many are lost. Raises ``AgentDown`` when the
        server ends."""
        acp = await self._server(place, view)
        last = after
        while True:
            fresh = True
            async with contextlib.aclosing(acp.events(last)) as stream:
                async for event in stream:
                    number = 0 if event is None else number_of(event)
                    if event is None or number <= last:
                        continue
                    if number > last + 1 and not fresh:
                        break  # the server has skipped one; it gives it to who asks again
                    if number > last + 1:
                        for item in with_gaps(await read_tapped(place, view.process_id, last, number), last, number):
                            yield item
                    last, fresh = number, False
                    self._remember(place, view.process_id, number)
                    told = parse(event.data.encode())
                    if told is not None:
                        yield OutputLine(number, number + 1, told)
            if fresh:
                raise AgentDown(f"{self.agent} hung up; the next message starts it again")

    async def read(self, place: Place, process_id: str, offset: int) -> Sequence[OutputLine]:
        """Read all events that are there now: those before the answer to a request that is sent now."""
        view = await find_process(place, process_id)
        if view is None or not view.running:
            raise ProcessNotFound("the server is gone, and what it had kept with it")
        found: list[OutputLine] = []
        id = new_id()
        async with contextlib.aclosing(self._exchange_lines(place, view, ping(id), offset)) as lines:
            async for line in lines:
                if is_answer(line.message, id):
                    break
                found.append(line)
        return found

    # -- requests ------------------------------------------------------------------------------------------------------

    async def write_to(self, place: Place, process_id: str, line: bytes) -> None:
        view = await require_running(place, process_id)
        acp = await self._server(place, view)
        await acp.post(message_of(line), self.timeouts.request)

    async def ask(
        self, place: Place, found: AgentProcess, line: bytes, is_answer: Callable[[JsonObject], bool], seconds: float
    ) -> JsonObject:
        return (await self._ask(place, found.view, line, is_answer, seconds)).message

    async def _ask(
        self, place: Place, view: ProcessView, line: bytes, is_answer: Callable[[JsonObject], bool], seconds: float
    ) -> OutputLine:
        after = self._seen.get((place.session_id, view.process_id), 0)
        answers = self._exchange_lines(place, view, line, after)
        async with answer_within(seconds, self.agent), contextlib.aclosing(answers) as lines:
            async for said in lines:
                if is_answer(said.message):
                    return said
        raise AgentDown(f"{self.agent} hung up; the next message starts it again")

    async def _exchange_lines(
        self, place: Place, view: ProcessView, line: bytes, after: int
    ) -> AsyncGenerator[OutputLine, None]:
        """Yield events while a request is sent. The first request makes the server start its agent and its events."""
        acp = await self._server(place, view)
        async with acp.hold_post(message_of(line)) as replied:
            if after == 0:
                await self._wait_for_events(acp, replied)
            async with contextlib.aclosing(_unless(self._lines(place, view, after), replied)) as items:
                async for item in items:
                    if isinstance(item, OutputLine):
                        if item.message.get("method") == EXITED:
                            raise AgentDown(
                                f"the agent behind {self.agent} has ended; the next message starts it again"
                            )
                        yield item

    async def _wait_for_events(self, acp: AcpServer, replied: "asyncio.Future[None]") -> None:
        """Wait until the server has events; there are none before the first message of the agent."""
        while not replied.done():
            with contextlib.suppress(AgentError):
                async with contextlib.aclosing(acp.events(0)) as stream:
                    await anext(stream)
                    return
            await asyncio.wait([replied], timeout=_RETRY_SECONDS)
        replied.result()

    async def position(self, place: Place, view: ProcessView) -> int:
        """Find the number of the newest event, by a request whose answer comes after all earlier events."""
        id = new_id()
        answer = await self._ask(place, view, ping(id), lambda told: is_answer(told, id), self.timeouts.request)
        self._hear_from(place, view, answer.start)
        return answer.start

    async def send(
        self, place: Place, view: ProcessView, line: bytes, name: str, heard: Callable[[], Awaitable[None]]
    ) -> None:
        """Send a request whose answer comes as an event, and return when it is sent.

        Its connection is held, under ``name``, until the answer or ``let_go``. If the server itself refuses the
        request, no event will come, and ``follow`` yields that error as the answer.
        """
        acp = await self._server(place, view)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        message, refusals = message_of(line), self._refusals_of(place, view.process_id)

        async def hold() -> None:
            try:
                async with acp.hold_post(
                    message, lambda error: refusals.add(RefusedRequest(name, message, error))
                ) as replied:
                    sent.set_result(None)
                    await asyncio.wait([replied], timeout=_HEARD_SECONDS)
                    if name not in refusals.names:
                        await heard()
                    await asyncio.wait([replied])
            except HoldfastError as error:
                if not sent.done():
                    sent.set_exception(error)

        task = asyncio.ensure_future(hold())
        self._held[name] = task
        task.add_done_callback(lambda _task: self._held.pop(name, None))
        await sent

    def _refusals_of(self, place: Place, process_id: str) -> "RefusedRequests":
        return self._refusals.setdefault((place.session_id, process_id), RefusedRequests())

    async def let_go(self, name: str) -> None:
        """Close the connection of a request whose answer has come."""
        task = self._held.get(name)
        if task is not None:
            await cancel_and_wait(task)

    # -- where it is ---------------------------------------------------------------------------------------------------

    async def _server(self, place: Place, view: ProcessView) -> AcpServer:
        key = (place.session_id, view.process_id)
        server = self._servers.get(key)
        if server is None:
            try:
                async with asyncio.timeout(self.timeouts.start):
                    server = await locate(place, view, await self.directory(place))
            except TimeoutError:
                raise AgentDown(f"{self.agent} listens nowhere; the next message starts it again") from None
            self._servers[key] = server
        return AcpServer(place, server, self._behind)

    async def read_along(self, place: Place, view: ProcessView) -> None:
        """Start the tap, so that nothing is lost that the server says, even if no daemon listens."""
        key = (place.session_id, view.process_id)
        if key not in self._tapped:
            acp = await self._server(place, view)
            await open_tap(place, view, f"{await self.directory(place)}/{TOKEN_FILE}", acp.server.port, acp.path)
            self._tapped[key] = None

    def _hear_from(self, place: Place, view: ProcessView, number: int) -> None:
        self._uncut_since.setdefault((place.session_id, view.process_id), number)

    def _remember(self, place: Place, process_id: str, number: int) -> None:
        key = (place.session_id, process_id)
        self._seen[key] = max(self._seen.get(key, 0), number)


class PostJournal(Journal):
    """Saves a note before each POST, as the journal of a process's stdin does before each line."""

    def __init__(self, supervisor: HttpSupervisor, kind: str) -> None:
        super().__init__(supervisor.agent, kind, supervisor.directory)
        self._supervisor = supervisor

    async def deliver(
        self,
        place: Place,
        process: ProcessView,
        generation: int,
        line: bytes,
        *key: str,
        note: Mapping[str, str] | None = None,
    ) -> Delivery:
        async with stdin_lock(self._supervisor.agent, place):
            known = await self.arrived(place, *key)
            if known is not None:
                return known
            view = await require_running(place, process.process_id)
            await self._supervisor.read_along(place, view)
            at = await self._supervisor.position(place, view)
            delivery = Delivery(view.process_id, generation, 0, 0, at, dict(note or {}))
            path = await self._path(place, key)
            await write_file(place, path, delivery.to_bytes())
            try:
                await self._say(place, view, line, self.name(*key), path, delivery)
            except AgentDown:  # nobody was there to hear it
                with contextlib.suppress(FileMissing):
                    await place.sandbox.files.remove(place.session_id, path, recursive=False)
                raise
            return self._remember(place, key, delivery)

    async def _say(
        self, place: Place, view: ProcessView, line: bytes, name: str, path: str, delivery: Delivery
    ) -> None:
        if "method" not in message_of(line) or "id" not in message_of(line):
            await self._supervisor.write_to(place, view.process_id, line)
            return

        async def heard() -> None:
            await write_file(place, path, replace(delivery, note={**delivery.note, SENT: "yes"}).to_bytes())

        await self._supervisor.send(place, view, line, name, heard)


async def _or_refusals(
    stream: AsyncGenerator[OutputLine | int, None], refusals: RefusedRequests, told: set[RefusedRequest]
) -> AsyncGenerator[OutputLine | int | RefusedRequest, None]:
    """Yield the same items, and the server's refusals as soon as they come."""
    async with contextlib.aclosing(stream):
        while True:
            coming = asyncio.ensure_future(anext(stream))
            try:
                while not coming.done():
                    refusal = asyncio.ensure_future(refusals.next(told))
                    try:
                        await asyncio.wait([coming, refusal], return_when=asyncio.FIRST_COMPLETED)
                        if refusal.done():
                            yield refusal.result()
                    finally:
                        await cancel_and_wait(refusal)
                item = coming.result()
            finally:
                await cancel_and_wait(coming)
            yield item


async def _unless(
    stream: AsyncGenerator[OutputLine | int, None], replied: "asyncio.Future[None]"
) -> AsyncGenerator[OutputLine | int, None]:
    """Yield the same items, until the request that they belong to has failed."""
    async with contextlib.aclosing(stream):
        while True:
            coming = asyncio.ensure_future(anext(stream))
            try:
                if not replied.done():
                    waits: list[asyncio.Future[OutputLine | int] | asyncio.Future[None]] = [coming, replied]
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if replied.done() and not coming.done():
                    replied.result()
                    await asyncio.wait([coming])
                item = coming.result()
            finally:
                await cancel_and_wait(coming)
            yield item
