"""Services of sessions: started when they are wanted, followed, stopped when nobody is connected.

What is known here is only what a look at the session's processes can tell again, for a session that is awake: after a
sleep, and in a new daemon, it is looked at anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass

import structlog

from holdfast.concurrency import Bounded, KeyedLocks, cancel_and_wait, every
from holdfast.errors import (
    BadInput,
    HoldfastError,
    ProcessNotFound,
    ServiceNotFound,
    ServiceStopped,
)
from holdfast.gateway.services.inside import tail
from holdfast.gateway.services.life import CheckPort, ServiceLife
from holdfast.gateway.services.metrics import ServiceMetrics
from holdfast.gateway.services.probe import answers
from holdfast.gateway.services.run import TERMINAL_VIEW, ServiceRun, ServiceView, view_of
from holdfast.gateway.services.states import Ending, ServiceEvent, ServiceState
from holdfast.records.machine import Status
from holdfast.records.services import TERMINAL, ServiceSpec
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session, unusable
from holdfast.sessions.use.follow import Chunk
from holdfast.sessions.use.processes import Background, ProcessView

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 5.0
"""A session that could not be looked at is left alone for so long."""
LOOKS_AT_ONCE = 16
FAILED_SECONDS = 5.0
"""A visitor who comes so soon after a start that failed is told of it, and does not start it again."""
MOST_LOG = 1 << 20
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class ServiceLog:
    """A piece of what a service has written. ``next_offset`` is where the next piece begins."""

    chunks: tuple[Chunk, ...]
    next_offset: int


class SessionServices:
    """Services of this host's sessions. Use ``running()`` around its use."""

    def __init__(self, sessions: SessionService, check_port: CheckPort, metrics: ServiceMetrics) -> None:
        self._sessions = sessions
        self._ports = sessions.ports
        self._life = ServiceLife(
            sessions, check_port, metrics, look=self._look, forget=self._forget, is_current=self._is_current
        )
        self._looks: KeyedLocks[str] = KeyedLocks()
        self._runs: dict[str, dict[str, ServiceRun]] = {}
        self._looked_at: dict[str, Session] = {}
        self._not_before: Bounded[str, float] = Bounded(_REMEMBERED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: set[str] = set()
        self._turns = asyncio.Semaphore(LOOKS_AT_ONCE)
        metrics.ready.set_function(lambda: sum(run.state is ServiceState.READY for run in self._all()))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ticking = asyncio.create_task(every(TICK_SECONDS, self._tick, on_failure="services.tick.failed", at_once=True))
        try:
            yield
        finally:  # the programs go on: the next daemon finds them
            runs = self._all()
            tasks = [task for run in runs for task in (run.starting, run.watching) if task is not None]
            await cancel_and_wait(ticking, *tasks, *self._tasks)

    # -- what the API calls --------------------------------------------------------------------------------------------

    async def list(self, session_id: str, /) -> list[ServiceView]:
        """Return what the session's image declares, and the terminal. This wakes nothing."""
        session = self._ports.awake(session_id)
        if session is None:
            row = await self._sessions.get(session_id)
            if row.status in (Status.DESTROYING, Status.DESTROYED):
                raise unusable(row)
            reason = "the session is asleep" if row.status is Status.PAUSED else "the session cannot be used now"
            return [*(view_of(spec, reason) for spec in row.spec.services), TERMINAL_VIEW]
        await self._look(session)
        return [*(self._run(session, spec).view() for spec in session.record.spec.services), TERMINAL_VIEW]

    async def start(self, session_id: str, name: str, /) -> ServiceView:
        """Start a service unless it runs, and return when it is ready. Any number of callers share one start.

        It wakes the session. Raises ``ServiceNotFound``, ``ServiceNeedsMemory``, ``ServiceFailed``.
        """
        session = await self._ports.wake(session_id)
        with session.in_use():
            if name == TERMINAL:
                return TERMINAL_VIEW
            run = self._run(session, declared(session, name))
            if run.state is not ServiceState.READY:
                await self._life.wait(self._life.begin(run))
            run.note_use()
            return run.view()

    async def stop(self, session_id: str, name: str, /) -> None:
        """Stop a service, and forget how often it failed. It is no error if it does not run, or if the session sleeps.

        A start that is under way is given up.
        """
        if name == TERMINAL:
            raise BadInput("the terminal has no program of its own that could be stopped")
        session = self._ports.awake(session_id)
        if session is None:
            row = await self._sessions.get(session_id)
            if row.status in (Status.DESTROYING, Status.DESTROYED):
                raise unusable(row)
            find(row.spec.services, name)
            return
        with session.in_use():
            spec = declared(session, name)
            await self._look(session)
            run = self._run(session, spec)
            if run.starting is not None:
                await cancel_and_wait(run.starting)
            await self._life.end(run)

    async def log(self, session_id: str, name: str, /, *, offset: int, limit: int) -> ServiceLog:
        """Return what it has written in this run, or the last one, from an offset on. It wakes the session."""
        if name == TERMINAL:
            raise BadInput("the terminal has no program of its own, and so no log")
        session = await self._ports.wake(session_id)
        run = self._run(session, declared(session, name))
        try:
            chunks, view = await self._sessions.processes.read(session_id, run.process_id, offset=offset, limit=limit)
        except ProcessNotFound:
            return ServiceLog((), 0)
        return ServiceLog(tuple(chunks), chunks[-1].end if chunks else min(offset, view.written))

    # -- what the gateway calls ----------------------------------------------------------------------------------------

    def is_ready(self, session: Session, spec: ServiceSpec) -> bool:
        """Say whether it can be connected to; then that counts as a use of it."""
        run = self._run(session, spec)
        if run.state is ServiceState.READY:
            run.note_use()
        return run.state is ServiceState.READY

    async def make_ready(self, session: Session, spec: ServiceSpec, *, starts: bool, patience: float | None) -> bool:
        """Start it where it does not run and ``starts``; return whether it can be connected to.

        It is False after ``patience`` seconds, while it goes on starting; None waits for the end. Raises
        ``ServiceStopped`` if it does not run and is not to be started, ``ServiceFailed``, ``ServiceNeedsMemory``.
        """
        await self._look(session)
        if self.is_ready(session, spec):
            return True
        run = self._run(session, spec)
        if not starts and run.starting is None:
            raise ServiceStopped(f"the service {spec.name} is {run.state}; going to its page starts it")
        now = asyncio.get_running_loop().time()
        if run.starting is None and run.failed_at is not None and now - run.failed_at < FAILED_SECONDS:
            raise run.failure()
        starting = self._life.begin(run)
        if patience is not None:
            await asyncio.wait([starting], timeout=patience)
            if not starting.done():
                return False
        await self._life.wait(starting)
        return True

    # -- keeping watch -------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Look at sessions that have just become awake, forget those that are not, and stop what nobody uses."""
        for known in {*self._looked_at.values(), *(run.session for run in self._all())}:
            if self._ports.awake(known.id) is not known:
                self._forget(known)
        now = asyncio.get_running_loop().time()
        for session in self._sessions.awake():
            if self._is_to_be_looked_at(session, now):
                self._looking.add(session.id)
                self._spawn(self._try_to_look(session))
        for run in self._all():
            if self._life.is_idle(run, now):
                self._spawn(self._life.stop_idle(run))

    def _is_to_be_looked_at(self, session: Session, now: float) -> bool:
        if not session.record.spec.services or self._looked_at.get(session.id) is session:
            return False
        return session.id not in self._looking and self._not_before.get(session.id, now) <= now

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        """Do it beside the watch: a session that does not answer keeps no other one waiting."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try_to_look(self, session: Session) -> None:
        try:
            async with self._turns:
                await self._look(session)
        except HoldfastError as error:
            log.debug("services.look.failed", session_id=session.id, code=error.code, error=error.message)
            self._not_before[session.id] = asyncio.get_running_loop().time() + LOOK_AGAIN_SECONDS
        finally:
            self._looking.discard(session.id)

    async def _look(self, session: Session) -> None:
        """Find out which services of a session run, once for as long as it is awake."""
        if self._looked_at.get(session.id) is session or not session.record.spec.services:
            return
        async with self._looks.of(session.id):
            if self._looked_at.get(session.id) is session:
                return
            processes = {view.process_id: view for view in await Background.list(session)}
            if self._ports.awake(session.id) is not session:
                return
            for spec in session.record.spec.services:
                run = self._run(session, spec)
                if run.process_id in processes and not run.has_process:
                    await self._found(run, processes[run.process_id])
            self._looked_at[session.id] = session

    async def _found(self, run: ServiceRun, view: ProcessView) -> None:
        """Its process was started before: by an earlier daemon, or before the session slept."""
        if not view.running:
            run.has_process = True
            ending = Ending(view.exit_code or 0, had_oom=run.session.oom.look() > 0)
            if ending.event is ServiceEvent.DIED:
                run.take(ServiceEvent.DIED, ending.reason + await tail(run))
            return
        is_up = await answers(self._ports, run.session, run.spec)
        run.take(ServiceEvent.START)
        self._life.follow(run, view)
        if is_up:
            run.take(ServiceEvent.ANSWERED)
            run.note_use()
        else:
            self._life.begin(run)

    def _forget(self, session: Session) -> None:
        """It fell asleep, or cannot be reached: what is known of it may not be true any more."""
        if self._looked_at.get(session.id) is session:
            del self._looked_at[session.id]
        self._not_before.pop(session.id, None)
        runs = self._runs.get(session.id, {})
        for run in [run for run in runs.values() if run.session is session]:
            del runs[run.spec.name]
            run.take(ServiceEvent.SLEEP, "the session fell asleep")
            for task in (run.starting, run.watching):
                if task is not None and task is not asyncio.current_task():
                    task.cancel()
        if not runs:
            self._runs.pop(session.id, None)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _run(self, session: Session, spec: ServiceSpec) -> ServiceRun:
        runs = self._runs.setdefault(session.id, {})
        run = runs.get(spec.name)
        if run is None or run.session is not session:
            if run is not None:
                self._forget(run.session)
                runs = self._runs.setdefault(session.id, {})
            run = runs[spec.name] = ServiceRun(session, spec, used_at=asyncio.get_running_loop().time())
        return run

    def _is_current(self, run: ServiceRun) -> bool:
        return self._runs.get(run.session.id, {}).get(run.spec.name) is run

    def _all(self) -> Sequence[ServiceRun]:
        return [run for runs in self._runs.values() for run in runs.values()]


def find(services: tuple[ServiceSpec, ...], name: str) -> ServiceSpec:
    """Raises ``ServiceNotFound``."""
    spec = next((spec for spec in services if spec.name == name), None)
    if spec is None:
        known = ", ".join([*(spec.name for spec in services), TERMINAL])
        raise ServiceNotFound(
            f"the session has no service {name[:40]!r}; it has: {known}. Services come from the image that a session "
            "is made from"
        )
    return spec


def declared(session: Session, name: str) -> ServiceSpec:
    return find(session.record.spec.services, name)
