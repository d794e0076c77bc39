"""What one service of a session goes through: it is started, followed to its end, and stopped."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from holdfast.concurrency import KeyedLocks, seen
from holdfast.errors import Conflict, HoldfastError, ProcessNotFound, ServiceNeedsMemory
from holdfast.gateway.services.failures import Failures
from holdfast.gateway.services.inside import end_process, spawn, tail
from holdfast.gateway.services.metrics import ServiceMetrics
from holdfast.gateway.services.probe import answers
from holdfast.gateway.services.run import ServiceRun
from holdfast.gateway.services.states import Ending, ServiceEvent, ServiceState
from holdfast.records.services import TCP
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.use.processes import Background, ProcessView

log = structlog.get_logger(__name__)

_WAIT_MS = 20_000
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.25

CheckPort = Callable[[int], None]
"""It raises ``Forbidden`` for a port of a sandbox that is our own way out."""


class ServiceLife:
    def __init__(
        self,
        sessions: SessionService,
        check_port: CheckPort,
        metrics: ServiceMetrics,
        *,
        look: Callable[[Session], Awaitable[None]],
        forget: Callable[[Session], None],
        is_current: Callable[[ServiceRun], bool],
    ) -> None:
        """``look`` finds out what runs in a session, ``forget`` drops what is known of one, and ``is_current`` says
        whether a run has not been dropped."""
        self._sessions = sessions
        self._ports = sessions.ports
        self._check_port = check_port
        self._metrics = metrics
        self._look = look
        self._forget = forget
        self._is_current = is_current
        self._failures = Failures()
        self._locks: KeyedLocks[tuple[str, str]] = KeyedLocks()

    # -- starting ------------------------------------------------------------------------------------------------------

    def begin(self, run: ServiceRun) -> "asyncio.Future[None]":
        """Return the start that is under way; one is begun where there is none."""
        if run.starting is None:
            run.starting = seen(asyncio.ensure_future(self._start(run)))

            def ended(_: object) -> None:
                run.starting = None

            run.starting.add_done_callback(ended)
        return run.starting

    async def wait(self, starting: "asyncio.Future[None]") -> None:
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
            self.follow(run, view)
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
                run.note_use()
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

    def follow(self, run: ServiceRun, view: ProcessView) -> None:
        """Its process runs: notice when it ends."""
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

    async def end(self, run: ServiceRun) -> None:
        """Stop it on request, and forget how often it failed."""
        self._failures.forget(run.session.id, run.spec.name)
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

    def is_idle(self, run: ServiceRun, now: float) -> bool:
        if run.state is not ServiceState.READY or self._ports.use.is_open(run.session.id, run.spec.port):
            return False
        used_at = max(run.used_at, self._ports.use.left_at(run.session.id, run.spec.port))
        return now - used_at >= run.spec.idle_seconds

    async def stop_idle(self, run: ServiceRun) -> None:
        try:
            async with self._locks.of((run.session.id, run.spec.name)):
                if self.is_idle(run, asyncio.get_running_loop().time()):
                    self._stopped(run, "idle", f"nobody was connected for {run.spec.idle_seconds} s")
                    await end_process(run)
        except HoldfastError as error:
            log.warning("service.stop.failed", session_id=run.session.id, service=run.spec.name, error=error.message)

    def _tell(self, kind: EventKind, run: ServiceRun, **more: object) -> None:
        session_id, name = run.session.id, run.spec.name
        reason = {"reason": run.reason} if run.reason else {}
        log.info(kind, session_id=session_id, service=name, **reason, **more)
        self._sessions.tell(kind, session_id, {"service": name, **reason, **more})
