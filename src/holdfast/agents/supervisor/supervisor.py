"""The supervisor of an agent's processes, one per channel: it finds, starts, restarts and ends them."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.agents.base import Place
from holdfast.agents.known import how_to_install
from holdfast.agents.supervisor import home, journal
from holdfast.agents.supervisor.breaker import MOST_FAILURES, WINDOW_SECONDS, StartBreaker
from holdfast.agents.supervisor.journal import Journal
from holdfast.agents.supervisor.launch import Launch, mark_of
from holdfast.agents.supervisor.lines import JsonObject, OutputLine
from holdfast.agents.supervisor.output import OutputItem, answer_within, complaint, follow_lines, read_lines
from holdfast.concurrency import Bounded, KeyedLocks, cancel_and_wait
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
_STARTS = KeyedLocks[tuple[str, str, str]]()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an agent may take, in seconds."""

    start: float = 60.0
    health: float = 5.0
    request: float = 30.0
    quiet: float = 15.0
    """How long a turn may be silent before the agent is asked whether it lives."""
    hung: float = 60.0
    """How long it may then take to answer. This is longer than ``health``: ending a turn is expensive, and a busy
    machine is slow."""


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """An agent's process, with the generation and the digest from its mark."""

    view: ProcessView
    generation: int
    digest: str


Handshake = Callable[[AgentProcess], Awaitable[None]]
"""It returns when the process has said that it is ready (or alive). The supervisor sets the deadline."""


class Supervisor:
    """The supervisor of one kind of agent, in all places. It can lose all that it remembers, but for counted
    failures."""

    def __init__(
        self, agent: str, timeouts: Timeouts | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.agent = agent
        self.timeouts = timeouts or Timeouts()
        self._clock = clock
        self._roots = home.Roots()
        self._breakers = Bounded[tuple[str, str], StartBreaker](_REMEMBERED)
        self._up = Bounded[tuple[str, str], str](_REMEMBERED)  # place -> the process that was last seen running
        self._stopped = Bounded[str, None](_REMEMBERED)  # processes that we have ended, so their end is no failure
        self._journals: dict[str, Journal] = {}

    # -- where ---------------------------------------------------------------------------------------------------------

    async def directory(self, place: Place) -> str:
        """Return the agent's own directory in this channel. It is created by the first start."""
        return home.agent_directory(await self._roots.find(place), self.agent, place.channel)

    def journal(self, kind: str) -> Journal:
        """Return the journal of this kind; always the same object, because it has a memory."""
        if kind not in self._journals:
            self._journals[kind] = Journal(self.agent, kind, self.directory)
        return self._journals[kind]

    async def find(self, place: Place) -> AgentProcess | None:
        """Find the newest process of this channel, running or not."""
        newest: AgentProcess | None = None
        for view in await place.sandbox.processes.list(place.session_id):
            mark = mark_of(view.cmd)
            if mark is None or mark.agent != self.agent or mark.tag != channel_tag(place.channel):
                continue
            if newest is None or mark.generation > newest.generation:
                newest = AgentProcess(view, mark.generation, mark.digest)
        return newest

    async def running(self, place: Place, launch: Launch | None = None) -> AgentProcess:
        """Return the process that runs, or raise ``AgentDown``.

        With ``launch``, it must also have been started so, unless it is in the middle of a turn.
        """
        found = await self.find(place)
        if found is None or not found.view.running:
            raise AgentDown(f"the process of {self.agent} is not there; the next message starts it")
        if launch is not None and not _may_stay(found, place, launch):
            raise AgentDown(f"the configuration of {self.agent} has changed; the next message starts it again")
        self._note_running(place, found)
        return found

    def soon(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Put the health deadline around the check before a turn, so that a silent runner costs no more than a silent
        agent."""
        return answer_within(self.timeouts.health, self.agent)

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def start(self, place: Place, launch: Launch, ready: Handshake, alive: Handshake) -> AgentProcess:
        """Make sure that a process runs with this configuration and answers, and return it.

        ``ready`` checks a new process, ``alive`` one that was there. A process that does not answer, or has another
        configuration and no turn, is ended first. Raises ``AgentDown`` if it did not come up and may be tried again,
        ``AgentFailed`` if it makes no sense to try again soon.
        """
        async with _STARTS.of((self.agent, place.session_id, place.channel)):
            found = await self.find(place)
            if found is not None and found.view.running:
                if _may_stay(found, place, launch) and await self._answers(place, found, alive):
                    self._note_running(place, found)
                    return found
                await self._end(place, found)
            elif found is not None:
                await self._count_death(place, found)
            return await self._start_new(place, launch, ready, 1 if found is None else found.generation + 1)

    async def _answers(self, place: Place, found: AgentProcess, alive: Handshake) -> bool:
        """Say whether the process answers. It gets more time than in ``health``, because a busy process must not be
        ended."""
        seconds = self.timeouts.hung if place.in_turn else max(self.timeouts.health, self.timeouts.hung / 4)
        try:
            async with asyncio.timeout(seconds):
                await alive(found)
        except (TimeoutError, AgentError):
            return False
        return True

    async def _start_new(self, place: Place, launch: Launch, ready: Handshake, generation: int) -> AgentProcess:
        breaker = self._breaker(place)
        if (seconds := breaker.closed_for) > 0:
            raise AgentFailed(
                f"{self.agent} did not come up, or died, {MOST_FAILURES} times in {WINDOW_SECONDS / 60:.0f} minutes "
                f"and is not started again for {seconds:.0f} s. The last time: {breaker.why}"
            )
        await asyncio.sleep(breaker.pause)
        view = await self._launch(place, launch, generation)
        found = AgentProcess(view, generation, launch.digest)
        try:
            await self._wait_ready(place, found, ready)
        except (AgentDown, AgentFailed) as error:
            breaker.record_failure(error.message)
            raise
        self._note_running(place, found)
        return found

    async def _launch(self, place: Place, launch: Launch, generation: int) -> ProcessView:
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
        # Random, because generations begin anew after a sleep, and the journal must not mistake one for another.
        key = f"holdfast-agent:{self.agent}:{tag}:{generation}:{secrets.token_hex(8)}"
        try:
            return await place.sandbox.processes.start(place.session_id, request, idempotency_key=key)
        except ShellUnavailable as error:
            raise AgentFailed(f"{self.agent} needs bash to start: {error.message}") from error
        except BadInput as error:
            raise AgentFailed(f"{self.agent} cannot be started: {error.message}") from error

    async def _wait_ready(self, place: Place, found: AgentProcess, ready: Handshake) -> None:
        """Wait for the handshake or for the end of the process, whichever comes first."""
        processes = place.sandbox.processes
        handshake = asyncio.ensure_future(ready(found))
        ended = asyncio.ensure_future(self._wait_for_end(place, found.view.process_id))
        try:
            await asyncio.wait([handshake, ended], timeout=self.timeouts.start, return_when=asyncio.FIRST_COMPLETED)
            if handshake.done() and handshake.exception() is None:
                return
            # A process that has closed its stdin is usually about to end, and its exit code says why.
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
            waited = problem.message if problem is not None else f"not within {self.timeouts.start:.0f} s"
            heard = f". It said: {said}" if said else "; it said nothing"
            raise AgentDown(f"{self.agent} was started and did not get ready: {waited}{heard}")
        finally:
            await cancel_and_wait(handshake, ended)

    async def _wait_for_end(self, place: Place, process_id: str) -> None:
        view = await place.sandbox.processes.get(place.session_id, process_id, wait_ms=int(self.timeouts.start * 1000))
        if view.running:
            await asyncio.get_running_loop().create_future()

    async def stop(self, place: Place) -> None:
        """End the process: TERM, five seconds, KILL. No process is no error."""
        found = await self.find(place)
        if found is not None and found.view.running:
            await self._end(place, found)

    async def _end(self, place: Place, found: AgentProcess) -> None:
        self._stopped[found.view.process_id] = None
        await end(place, found.view)

    def _note_running(self, place: Place, found: AgentProcess) -> None:
        self._up[place.session_id, place.channel] = found.view.process_id

    async def _count_death(self, place: Place, found: AgentProcess) -> None:
        """Count a failure if the process was running and ended, and we did not end it.

        We do not know why other processes ended: another daemon may have stopped them. After a sleep, a sandbox does
        not know its earlier processes at all.
        """
        process_id = found.view.process_id
        if self._up.get((place.session_id, place.channel)) != process_id or process_id in self._stopped:
            return
        del self._up[place.session_id, place.channel]  # so that its death is counted only once
        said = await complaint(place, found.view)
        self._breaker(place).record_failure(f"it ended by itself, with {found.view.exit_code}: {said}")

    def _breaker(self, place: Place) -> StartBreaker:
        return self._breakers.setdefault((place.session_id, place.channel), StartBreaker(self._clock))

    # -- stdin and stdout ----------------------------------------------------------------------------------------------

    def follow(self, place: Place, process_id: str, offset: int, quiet: float) -> AsyncGenerator[OutputItem, None]:
        """Follow its output from ``offset`` on: see ``follow_lines``."""
        return follow_lines(place, process_id, offset, quiet)

    async def read(self, place: Place, process_id: str, offset: int) -> Sequence[OutputLine]:
        """Read its output from ``offset`` on. Raises ``ProcessNotFound`` if the runner does not know it any more."""
        lines, _view = await read_lines(place, process_id, offset)
        return lines

    async def write_to(self, place: Place, process_id: str, line: bytes) -> None:
        """Write a line whose loss or repetition does no harm. Other lines go through ``journal``."""
        await journal.write_line(self.agent, place, process_id, line)

    async def ask(
        self, place: Place, found: AgentProcess, line: bytes, is_answer: Callable[[JsonObject], bool], seconds: float
    ) -> JsonObject:
        """Write a request to stdin and return the line that answers it. Raises ``AgentDown`` if none comes in time."""
        view = found.view
        following = follow_lines(place, view.process_id, view.written, self.timeouts.request)
        async with answer_within(seconds, self.agent), contextlib.aclosing(following):
            async for item in following:
                if isinstance(item, Attached):
                    await self.write_to(place, view.process_id, line)
                elif isinstance(item, OutputLine) and is_answer(item.message):
                    return item.message
        raise AgentDown(f"the process of {self.agent} has ended; the next message starts it again")


def _may_stay(found: AgentProcess, place: Place, launch: Launch) -> bool:
    """Say whether the process has the wanted configuration, or is in a turn, which must end first."""
    return place.in_turn or found.digest == launch.digest


async def end(place: Place, view: ProcessView) -> None:
    """End a process: TERM, five seconds, KILL. Returns when it has ended."""
    processes = place.sandbox.processes
    with contextlib.suppress(ProcessNotFound):
        for name, wait_ms in (("TERM", TERM_MS), ("KILL", KILL_MS)):
            await processes.signal(place.session_id, view.process_id, name)
            if not (await processes.get(place.session_id, view.process_id, wait_ms=wait_ms)).running:
                return
        raise AgentFailed("the agent's process does not end, not even by KILL; destroy the session")
