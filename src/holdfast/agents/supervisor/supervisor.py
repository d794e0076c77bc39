"""One agent's process per channel: found, started with a handshake, restarted with patience, ended."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from holdfast.agents.base import Place
from holdfast.agents.known import how_to_install
from holdfast.agents.supervisor import home, journal
from holdfast.agents.supervisor.breaker import MOST_FAILURES, WINDOW_SECONDS, Breaker
from holdfast.agents.supervisor.journal import Journal
from holdfast.agents.supervisor.launch import Launch, mark_of
from holdfast.agents.supervisor.lines import Json, Line
from holdfast.agents.supervisor.output import Said, complaint, follow_lines, read_lines
from holdfast.errors import (
    AgentDown,
    AgentError,
    AgentFailed,
    AgentNotInstalled,
    BadInput,
    HoldfastError,
    ProcessNotFound,
    ShellUnavailable,
)
from holdfast.sessions.use.follow import Attached
from holdfast.sessions.use.processes import ProcessRequest, ProcessView
from holdfast.vocabulary.models import channel_tag

TERM_MS = 5000
KILL_MS = 5000
_LAST_MOMENT_MS = 500
_NOT_FOUND = 127
_REMEMBERED = 10_000
_STARTS: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an agent may take, in seconds."""

    start: float = 60.0
    health: float = 5.0
    request: float = 30.0
    quiet: float = 15.0
    """How long a turn may be silent before the agent is asked whether it lives."""
    hung: float = 60.0
    """How long it may then take to say so. Longer than ``health``: a turn is worth more, and a busy machine is slow."""


@dataclass(frozen=True, slots=True)
class Found:
    """An agent's process, and what its mark says."""

    view: ProcessView
    generation: int
    digest: str


Handshake = Callable[[Found], Awaitable[None]]
"""Returns when the process has said that it is ready (or alive). Its deadline is the supervisor's."""


class Supervisor:
    """Of one kind of agent, in all places. What it remembers it could find out again, but for its patience."""

    def __init__(
        self, agent: str, patience: Patience | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.agent = agent
        self.patience = patience or Patience()
        self._clock = clock
        self._roots: dict[str, str] = {}
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._up: dict[tuple[str, str], str] = {}  # by place, the process that was seen to run last
        self._stopped: set[str] = set()  # processes that were ended from here, and have not failed
        self._journals: dict[str, Journal] = {}

    # -- where ---------------------------------------------------------------------------------------------------------

    async def directory(self, place: Place) -> str:
        """The agent's own, in this channel. Not there before the first start."""
        known = self._roots.get(place.session_id)
        if known is None:
            if len(self._roots) >= _REMEMBERED:
                self._roots.clear()
            known = self._roots[place.session_id] = await home.root(place)
        return home.agent_directory(known, self.agent, place.channel)

    def journal(self, kind: str) -> Journal:
        """What is known by it is remembered here; it is always the same."""
        if kind not in self._journals:
            self._journals[kind] = Journal(self.agent, kind, self.directory)
        return self._journals[kind]

    async def find(self, place: Place) -> Found | None:
        """The newest of this channel, running or not."""
        newest: Found | None = None
        for view in await place.sandbox.processes.list(place.session_id):
            mark = mark_of(view.cmd)
            if mark is None or mark.agent != self.agent or mark.tag != channel_tag(place.channel):
                continue
            if newest is None or mark.generation > newest.generation:
                newest = Found(view, mark.generation, mark.digest)
        return newest

    async def running(self, place: Place, launch: Launch | None = None) -> Found:
        """The one that runs; with ``launch``, only if it was started so, or is in the middle of a turn."""
        found = await self.find(place)
        if found is None or not found.view.running:
            raise AgentDown(f"the process of {self.agent} is not there; the next message starts it")
        if launch is not None and not _may_stay(found, place, launch):
            raise AgentDown(f"the configuration of {self.agent} has changed; the next message starts it again")
        self._is_up(place, found)
        return found

    @contextlib.asynccontextmanager
    async def soon(self) -> AsyncGenerator[None, None]:
        """Around what is asked before every turn: a runner that does not answer must not take longer than an agent."""
        seconds = self.patience.health
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise AgentDown(
                f"{self.agent} did not answer within {seconds:.0f} s; the next message starts it again"
            ) from None

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def start(self, place: Place, launch: Launch, ready: Handshake, alive: Handshake) -> Found:
        """The process that runs with this configuration and answers. ``ready`` is asked of a new one, ``alive`` of one
        that was there; one that does not answer, or has another configuration and no turn, is ended first.

        ``AgentDown``: it did not come up, and may be tried again. ``AgentFailed``: there is no sense in trying soon.
        """
        key = (self.agent, place.session_id, place.channel)
        async with _STARTS.setdefault(key, asyncio.Lock()):
            found = await self.find(place)
            if found is not None and found.view.running:
                if _may_stay(found, place, launch) and await self._answers(place, found, alive):
                    self._is_up(place, found)
                    return found
                await self._end(place, found)
            elif found is not None:
                await self._count_death(place, found)
            return await self._started(place, launch, ready, 1 if found is None else found.generation + 1)

    async def _answers(self, place: Place, found: Found, alive: Handshake) -> bool:
        """More patient than ``health``: who is only busy must not be ended for it, and least of all in a turn."""
        seconds = self.patience.hung if place.in_turn else max(self.patience.health, self.patience.hung / 4)
        try:
            async with asyncio.timeout(seconds):
                await alive(found)
        except (TimeoutError, AgentError):
            return False
        return True

    async def _started(self, place: Place, launch: Launch, ready: Handshake, generation: int) -> Found:
        breaker = self._breaker(place)
        if (seconds := breaker.closed_for) > 0:
            raise AgentFailed(
                f"{self.agent} did not come up, or died, {MOST_FAILURES} times in {WINDOW_SECONDS / 60:.0f} minutes "
                f"and is not started again for {seconds:.0f} s. The last time: {breaker.why}"
            )
        await asyncio.sleep(breaker.pause)
        view = await self._launched(place, launch, generation)
        found = Found(view, generation, launch.digest)
        try:
            await self._wait_ready(place, found, ready)
        except (AgentDown, AgentFailed) as error:
            breaker.failed(error.message)
            raise
        self._is_up(place, found)
        return found

    async def _launched(self, place: Place, launch: Launch, generation: int) -> ProcessView:
        where = await self.directory(place)
        files = place.sandbox.files
        for path in (where.rpartition("/")[0].rpartition("/")[0], where.rpartition("/")[0], where):
            await files.mkdir(place.session_id, path, parents=True, mode=0o700)
        for name, data in launch.files.items():
            await home.write_file(place, f"{where}/{name}", data)
        tag = channel_tag(place.channel)
        request = ProcessRequest(
            cmd=launch.command(tag, generation),
            env=launch.env,
            cwd=launch.cwd,
            stdin=True,
            output_bytes=launch.output_bytes,
            told_of_cuts=tag if launch.told_of_cuts else None,
        )
        # Of this start alone: after a sleep generations begin anew, and the journal must not take one for another.
        key = f"holdfast-agent:{self.agent}:{tag}:{generation}:{secrets.token_hex(8)}"
        try:
            return await place.sandbox.processes.start(place.session_id, request, idempotency_key=key)
        except ShellUnavailable as error:
            raise AgentFailed(f"{self.agent} needs bash to start: {error.message}") from error
        except BadInput as error:
            raise AgentFailed(f"{self.agent} cannot be started: {error.message}") from error

    async def _wait_ready(self, place: Place, found: Found, ready: Handshake) -> None:
        """Its handshake, or its end, whichever comes first."""
        processes = place.sandbox.processes
        handshake = asyncio.ensure_future(ready(found))
        ended = asyncio.ensure_future(self._ended(place, found.view.process_id))
        try:
            await asyncio.wait([handshake, ended], timeout=self.patience.start, return_when=asyncio.FIRST_COMPLETED)
            if handshake.done() and handshake.exception() is None:
                return
            # One that has broken off its input is most often about to end, and its exit code says why.
            view = await processes.get(place.session_id, found.view.process_id, wait_ms=_LAST_MOMENT_MS)
            problem = handshake.exception() if handshake.done() else None
            if problem is not None and not isinstance(problem, HoldfastError):
                raise problem
            said = await complaint(place, view)
            if not view.running:
                why = (
                    f"{self.agent} ended as soon as it was started, with {view.exit_code}: {said or 'it said nothing'}"
                )
                if view.exit_code == _NOT_FOUND:
                    raise AgentNotInstalled(
                        f"{self.agent} is not in this sandbox ({said}); {how_to_install(self.agent)}"
                    )
                raise AgentDown(why)
            await end(place, view)
            if isinstance(problem, AgentFailed):
                raise problem
            waited = problem.message if problem is not None else f"not within {self.patience.start:.0f} s"
            heard = f". It said: {said}" if said else "; it said nothing"
            raise AgentDown(f"{self.agent} was started and did not get ready: {waited}{heard}")
        finally:
            for task in (handshake, ended):
                task.cancel()
            await asyncio.gather(handshake, ended, return_exceptions=True)

    async def _ended(self, place: Place, process_id: str) -> None:
        view = await place.sandbox.processes.get(place.session_id, process_id, wait_ms=int(self.patience.start * 1000))
        if view.running:
            await asyncio.get_running_loop().create_future()

    async def stop(self, place: Place) -> None:
        """TERM, five seconds, KILL. One that is not there is success."""
        found = await self.find(place)
        if found is not None and found.view.running:
            await self._end(place, found)

    async def _end(self, place: Place, found: Found) -> None:
        if len(self._stopped) >= _REMEMBERED:
            self._stopped.clear()
        self._stopped.add(found.view.process_id)
        await end(place, found.view)

    def _is_up(self, place: Place, found: Found) -> None:
        if len(self._up) >= _REMEMBERED:
            self._up.clear()
        self._up[place.session_id, place.channel] = found.view.process_id

    async def _count_death(self, place: Place, found: Found) -> None:
        """One that was up and has ended, and not by us, has failed. Of others nobody here knows why they ended: another
        daemon may have stopped them. A sandbox that slept knows none of its processes."""
        process_id = found.view.process_id
        if self._up.get((place.session_id, place.channel)) != process_id or process_id in self._stopped:
            return
        del self._up[place.session_id, place.channel]  # each dies once
        said = await complaint(place, found.view)
        self._breaker(place).failed(f"it ended by itself, with {found.view.exit_code}: {said}")

    def _breaker(self, place: Place) -> Breaker:
        if len(self._breakers) >= _REMEMBERED:
            self._breakers.clear()
        return self._breakers.setdefault((place.session_id, place.channel), Breaker(self._clock))

    # -- stdin and stdout ----------------------------------------------------------------------------------------------

    def follow(self, place: Place, process_id: str, offset: int, quiet: float) -> AsyncGenerator[Said, None]:
        """What it says from ``offset`` on, as it says it: see ``follow_lines``."""
        return follow_lines(place, process_id, offset, quiet)

    async def read(self, place: Place, process_id: str, offset: int) -> Sequence[Line]:
        """What it has said from ``offset`` on until now. ``ProcessNotFound`` where nobody knows any more."""
        lines, _view = await read_lines(place, process_id, offset)
        return lines

    async def write(self, place: Place, found: Found, line: bytes) -> None:
        """A line whose loss, or repetition, does no harm. For others there is ``journal``."""
        await self.write_to(place, found.view.process_id, line)

    async def write_to(self, place: Place, process_id: str, line: bytes) -> None:
        await journal.write_line(self.agent, place, process_id, line)

    async def ask(
        self, place: Place, found: Found, line: bytes, is_answer: Callable[[Json], bool], seconds: float
    ) -> Json:
        """A request on stdin, and the line that is its answer. ``AgentDown`` if there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(place, found, line, is_answer)
        except TimeoutError:
            raise AgentDown(
                f"{self.agent} did not answer within {seconds:.0f} s; the next message starts it again"
            ) from None

    async def _exchange(self, place: Place, found: Found, line: bytes, is_answer: Callable[[Json], bool]) -> Json:
        view = found.view
        following = follow_lines(place, view.process_id, view.written, self.patience.request)
        async with contextlib.aclosing(following):
            async for item in following:
                if isinstance(item, Attached):
                    await self.write(place, found, line)
                elif isinstance(item, Line) and is_answer(item.told):
                    return item.told
        raise AgentDown(f"the process of {self.agent} has ended; the next message starts it again")


def _may_stay(found: Found, place: Place, launch: Launch) -> bool:
    """What it was started with is what is wanted, or must do until its turn is over."""
    return place.in_turn or found.digest == launch.digest


async def end(place: Place, view: ProcessView) -> None:
    """TERM, five seconds, KILL. Returns when it has ended."""
    processes = place.sandbox.processes
    with contextlib.suppress(ProcessNotFound):
        for name, wait_ms in (("TERM", TERM_MS), ("KILL", KILL_MS)):
            await processes.signal(place.session_id, view.process_id, name)
            if not (await processes.get(place.session_id, view.process_id, wait_ms=wait_ms)).running:
                return
        raise AgentFailed("the agent's process does not end, not even by KILL; destroy the session")
