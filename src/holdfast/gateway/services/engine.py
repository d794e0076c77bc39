"""Services of sessions: started when they are wanted, followed, stopped when nobody is connected.

What is known here is only what a look at the session's processes can tell again, for a session that is awake: after a
sleep, and in a new daemon, it is looked at anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass

import structlog

from holdfast.concurrency import Bounded, KeyedLocks, cancel_and_wait, every, seen
from holdfast.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    ProcessNotFound,
    ServiceNeedsMemory,
    ServiceNotFound,
    ServiceStopped,
)
from holdfast.gateway.services.failures import Failures
from holdfast.gateway.services.inside import end_process, spawn, tail
from holdfast.gateway.services.metrics import ServiceMetrics
from holdfast.gateway.services.probe import answers
from holdfast.gateway.services.run import TERMINAL_VIEW, ServiceRun, ServiceView, view_of
from holdfast.gateway.services.states import Ending, ServiceEvent, ServiceState
from holdfast.records.machine import Status
from holdfast.records.services import TCP, TERMINAL, ServiceSpec
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session, unusable
from holdfast.sessions.telling.event_kinds import EventKind
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
_WAIT_MS = 20_000
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.25

CheckPort = Callable[[int], None]
"""It raises ``Forbidden`` for a port of a sandbox that is our own way out."""


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
        self._check_port = check_port
        self._metrics = metrics
        self._failures = Failures()
        self._locks: KeyedLocks[tuple[str, str]] = KeyedLocks()
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
                await self._wait(self._begin(run))
            self._note_use(run)
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
            self._failures.forget(session_id, name)
            await self._end(run)

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
            self._note_use(run)
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
        starting = self._begin(run)
        if patience is not None:
            await asyncio.wait([starting], timeout=patience)
            if not starting.done():
                return False
        await self._wait(starting)
        return True

    # -- starting ------------------------------------------------------------------------------------------------------

    def _begin(self, run: ServiceRun) -> "asyncio.Future[None]":
        """Return the start that is under way; one is begun where there is none."""
        if run.starting is None:
            run.starting = seen(asyncio.ensure_future(self._start(run)))

            def ended(_: object) -> None:
                run.starting = None

            run.starting.add_done_callback(ended)
        return run.starting

    async def _wait(self, starting: "asyncio.Future[None]") -> None:
        """Wait for a start that others may share: who leaves does not end it."""
        await asyncio.wait([starting])
        if starting.cancelled():
            raise Conflict("the service was stopped, or its session fell asleep, while it started; start it again")
        starting.result()

    async def _start(self, run: ServiceRun) -> None:
        await self._look(run.session)
        async with self._locks.of((run.session.id, run.spec.name)):
            if run.state in (ServiceState.STOPPED, ServiceState.FAILED):
                self._check(run)
            with run.session.in_use():
                try:
                    await self._bring_up(run)
                except HoldfastError as error:
                    await self._note_failure(run, error)
                    raise

    async def _bring_up(self, run: ServiceRun) -> None:
        if run.state is ServiceState.READY:
            return
        if run.state is not ServiceState.STARTING:  # or else it was found so, and is only waited for
            run.take(ServiceEvent.START)
            run.kills = run.session.oom.look()
            view = await spawn(self._sessions, run)
            self._metrics.started.inc()
            self._follow(run, view)
            self._tell(EventKind.SERVICE_STARTED, run)
        await self._answered(run)

    def _check(self, run: ServiceRun) -> None:
        """Refuse what cannot go well."""
        session, spec = run.session, run.spec
        self._check_port(spec.port)
        limit = session.record.spec.limits.memory_mb
        if spec.memory_mb is not None and limit < spec.memory_mb:
            raise ServiceNeedsMemory(
                f"the service {spec.name} needs a session with at least {spec.memory_mb} MB, and this one has {limit}; "
                f"make one with memory_mb: {spec.memory_mb}"
            )
        self._failures.check(session.id, spec.name, asyncio.get_running_loop().time(), run.reason)

    async def _answered(self, run: ServiceRun) -> None:
        """Wait until it answers. Raises ``ServiceFailed`` if it ends before, or does not answer in time."""
        loop, delay = asyncio.get_running_loop(), _FIRST_WAIT
        begun = loop.time()
        assert run.watching is not None, "it is followed from its start on"
        while not run.watching.done():
            if await answers(self._ports, run.session, run.spec) and not run.watching.done():
                run.take(ServiceEvent.ANSWERED)
                self._note_use(run)
                self._metrics.start_seconds.observe(loop.time() - begun)
                self._tell(EventKind.SERVICE_READY, run)
                return
            if loop.time() - begun >= run.spec.start_seconds:
                await self._give_up(run)
                raise run.failure()
            await asyncio.wait([run.watching], timeout=delay)
            delay = min(delay * 1.5, _LONGEST_WAIT)
        run.watching.result()  # the session went away
        raise run.failure()

    async def _give_up(self, run: ServiceRun) -> None:
        """It has not answered in time."""
        spec, said = run.spec, await tail(run)
        if run.state is not ServiceState.STARTING:
            return  # it ended in this very moment
        where = f"port {spec.port}" + ("" if spec.ready == TCP else f" with a success to GET {spec.ready}")
        run.take(ServiceEvent.LATE, f"it did not answer at {where} within {spec.start_seconds} s{said}")
        self._metrics.failed.labels("late").inc()
        self._tell(EventKind.SERVICE_FAILED, run)
        await end_process(run)

    async def _note_failure(self, run: ServiceRun, error: HoldfastError) -> None:
        """A start has failed: say so in the state, unless that was done."""
        if run.state is ServiceState.STARTING and self._is_current(run):
            run.take(ServiceEvent.DIED, error.message)
            self._metrics.failed.labels("start").inc()
            self._tell(EventKind.SERVICE_FAILED, run)
            if run.has_process:
                await end_process(run)
        if run.state is ServiceState.FAILED:
            now = run.failed_at = asyncio.get_running_loop().time()
            self._failures.add(run.session.id, run.spec.name, now)

    # -- following -----------------------------------------------------------------------------------------------------

    def _follow(self, run: ServiceRun, view: ProcessView) -> None:
        run.has_process = True
        run.started_at = view.started_at
        run.watching = seen(asyncio.create_task(self._watch(run)))

    async def _watch(self, run: ServiceRun) -> None:
        """Follow the process to its end, and tell of it. Raises what makes it impossible to follow."""
        session = run.session
        while True:
            try:
                view = await Background.get(session, run.process_id, wait_ms=_WAIT_MS)
            except ProcessNotFound:  # somebody has killed and removed it, by the API
                run.has_process = False
                if run.state in (ServiceState.STARTING, ServiceState.READY):
                    self._stopped(run, "removed", "its process was removed")
                return
            except HoldfastError:
                self._forget(session)
                raise
            if not view.running:
                break
        await self._ended(run, view)

    async def _ended(self, run: ServiceRun, view: ProcessView) -> None:
        if run.state not in (ServiceState.STARTING, ServiceState.READY):
            return  # by us
        ending = Ending(view.exit_code or 0, had_oom=run.session.oom.look() > run.kills)
        said = await tail(run)
        if run.state not in (ServiceState.STARTING, ServiceState.READY):
            return
        if run.state is ServiceState.READY and ending.event is ServiceEvent.ENDED:
            self._stopped(run, "ended", ending.reason)
            return
        was_ready = run.state is ServiceState.READY
        run.take(ending.event, f"{ending.reason}{said}")
        self._metrics.failed.labels("oom" if ending.had_oom else "ended").inc()
        self._tell(EventKind.SERVICE_FAILED, run, exit_code=view.exit_code)
        if was_ready:
            self._failures.add(run.session.id, run.spec.name, asyncio.get_running_loop().time())

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def _end(self, run: ServiceRun) -> None:
        async with self._locks.of((run.session.id, run.spec.name)):
            if run.state in (ServiceState.STARTING, ServiceState.READY):
                self._stopped(run, "requested", "it was stopped on request")
                await end_process(run)
            elif run.state is ServiceState.FAILED:
                run.take(ServiceEvent.STOP)

    def _stopped(self, run: ServiceRun, why: str, reason: str) -> None:
        run.take(ServiceEvent.STOP, reason)
        self._metrics.stopped.labels(why).inc()
        self._tell(EventKind.SERVICE_STOPPED, run)

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
            if self._is_idle(run, now):
                self._spawn(self._stop_idle(run))

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

    def _is_idle(self, run: ServiceRun, now: float) -> bool:
        if run.state is not ServiceState.READY or self._ports.use.is_open(run.session.id, run.spec.port):
            return False
        used_at = max(run.used_at, self._ports.use.left_at(run.session.id, run.spec.port))
        return now - used_at >= run.spec.idle_seconds

    async def _stop_idle(self, run: ServiceRun) -> None:
        try:
            async with self._locks.of((run.session.id, run.spec.name)):
                if self._is_idle(run, asyncio.get_running_loop().time()):
                    self._stopped(run, "idle", f"nobody was connected for {run.spec.idle_seconds} s")
                    await end_process(run)
        except HoldfastError as error:
            log.warning("service.stop.failed", session_id=run.session.id, service=run.spec.name, error=error.message)

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
        self._follow(run, view)
        if is_up:
            run.take(ServiceEvent.ANSWERED)
            self._note_use(run)
        else:
            self._begin(run)

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

    def _note_use(self, run: ServiceRun) -> None:
        run.used_at = asyncio.get_running_loop().time()

    def _tell(self, kind: EventKind, run: ServiceRun, **more: object) -> None:
        session_id, name = run.session.id, run.spec.name
        reason = {"reason": run.reason} if run.reason else {}
        log.info(kind, session_id=session_id, service=name, **reason, **more)
        self._sessions.tell(kind, session_id, {"service": name, **reason, **more})


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
