"""Comparing rows with facts, at start and on every tick, and finishing what was left half done.

| row            | sandbox            | what is done                                            |
| -------------- | ------------------ | ------------------------------------------------------- |
| creating       | any                | the create is finished (or given up, and cleaned)       |
| active         | running            | adopted, if this daemon has no link to it yet           |
| active         | paused             | it goes on: a daemon without its row had set it aside;  |
|                |                    | if the row says so, it waits for room (``disk_guard``)  |
| active         | stopped or absent  | ``error`` with reason ``crashed``                       |
| pausing        | any                | finished if it sleeps already, else it goes on          |
| paused         | absent, or dead    | ``error`` with reason ``crashed``                       |
| resuming       | any                | it is woken; if that fails it sleeps on                 |
| destroying     | any                | the destroy is finished                                 |
| destroyed      | any                | the sandbox is removed                                  |
| none           | any                | set aside if it was a session's once (``strays``); else |
|                |                    | removed, unless it waits in the pool                    |

A look-up that fails changes nothing: absence is believed only when the driver has listed everything.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import structlog

from holdfast.drivers.base import Driver, SandboxInfo, SandboxState
from holdfast.errors import DriverError, HoldfastError, SandboxNotFound, SessionNotFound
from holdfast.records.machine import LIVE, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import LiveSessions
from holdfast.sessions.operations import Operations
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.watch.disk_guard import HELD, hold
from holdfast.sessions.watch.strays import Strays
from holdfast.store import SessionStore

log = structlog.get_logger(__name__)

_ASLEEP = (Status.PAUSING, Status.PAUSED, Status.RESUMING)
_LOOK_AGAIN_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long to wait before each look at a sandbox whose runner has hung up. After that the tick looks."""


class Reconciler:
    """One node's rows against one driver's sandboxes."""

    def __init__(
        self,
        store: SessionStore,
        driver: Driver,
        lifecycle: Lifecycle,
        sleep: Sleep,
        live: LiveSessions,
        operations: Operations,
        *,
        node: str,
        is_pooled: Callable[[str], bool],
        strays: Strays,
    ) -> None:
        self._store = store
        self._driver = driver
        self._is_pooled = is_pooled
        self._strays = strays
        self._lifecycle = lifecycle
        self._sleep = sleep
        self._live = live
        self._operations = operations
        self._node = node
        self._hung_up: set[str] = set()

    async def tick(self) -> None:
        """One comparison. Rows are read before sandboxes: what was made in between is looked up once more."""
        rows = await self._store.by_status(LIVE, node=self._node)
        try:
            found = await self._driver.list()
        except HoldfastError as error:
            log.warning("reconcile.list.failed", error=error.message, next="nothing is changed; tried again next tick")
            return
        facts = {info.session_id: info for info in found}
        for row in rows:
            await self._settle(row, facts.get(row.id))
        await self._settle_strays([info for info in found if info.session_id not in {row.id for row in rows}])
        await self._strays.refresh_marks(found)

    async def _settle(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        if self._operations.running(row.id):
            return
        try:
            if row.status == Status.CREATING:
                self._operations.spawn(row.id, lambda: self.finish_create(row.id))
            elif row.status == Status.DESTROYING:
                self._operations.spawn(row.id, lambda: self._finish_destroy(row.id))
            elif row.status == Status.ACTIVE:
                await self._settle_active(row, fact)
            elif row.status in _ASLEEP:
                self._operations.spawn(row.id, lambda: self._settle_sleeper(row, fact))
        except HoldfastError as error:
            log.warning("reconcile.failed", session_id=row.id, status=row.status, error=error.message)

    async def _settle_active(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        if fact is None or fact.state is SandboxState.STOPPED:
            await self._found_dead(row.id)  # looks again, also for what it died of
        elif self._live.get(row.id) is None:
            waits = row.error == HELD and self._driver.capabilities.pause
            if waits:
                await self._driver.pause(fact.handle)
            elif fact.state is SandboxState.PAUSED:
                await self._driver.resume(fact.handle)
            await self._lifecycle.adopt(row)
            live = self._live.get(row.id)
            if waits and live is not None:
                hold(live)
            log.info("session.adopted", session_id=row.id)

    async def _settle_sleeper(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        try:
            await self._sleep.settle(row, fact)
        except HoldfastError as error:
            log.warning("reconcile.failed", session_id=row.id, status=row.status, error=error.message)

    async def finish_create(self, session_id: str) -> None:
        try:
            await self._lifecycle.bring_up(session_id)
        except HoldfastError as error:
            log.warning("reconcile.create.failed", session_id=session_id, error=error.message)

    async def _finish_destroy(self, session_id: str) -> None:
        try:
            await self._lifecycle.take_down(session_id, Reason.REQUESTED)
        except HoldfastError as error:
            log.warning("reconcile.destroy.failed", session_id=session_id, error=error.message, next="tried again")

    async def _settle_strays(self, strays: Sequence[SandboxInfo]) -> None:
        for stray in strays:
            try:
                if self._is_pooled(stray.session_id):  # asked before the row: who is claimed has one by then
                    continue
                status = await self._status_of(stray.session_id)
                if status not in (None, Status.DESTROYED):
                    continue
                if status is None and await self._strays.keep(stray):
                    continue
                log.warning("reconcile.stray.removed", session_id=stray.session_id)
                await self._lifecycle.remove_stray(stray.session_id)
            except HoldfastError as error:
                log.warning("reconcile.stray.failed", session_id=stray.session_id, error=error.message)

    async def _status_of(self, session_id: str) -> str | None:
        try:
            return (await self._store.get(session_id)).status
        except SessionNotFound:
            return None

    def hung_up(self, session_id: str) -> None:
        """A runner has. An investigation that is under way may have looked too early, or at one before this."""
        self._hung_up.add(session_id)

    async def investigate(self, session_id: str) -> None:
        """A runner has hung up: find out whether its sandbox died. A runner that only lost us dials again at once."""
        while session_id in self._hung_up:
            self._hung_up.discard(session_id)
            await self._look_into(session_id)

    async def _look_into(self, session_id: str) -> None:
        """A dying sandbox hangs up before it is dead, so we look again until it is, or until its runner is back."""
        for seconds in _LOOK_AGAIN_SECONDS:
            await asyncio.sleep(seconds)
            live = self._live.get(session_id)
            if live is None and await self._is_coming(session_id):
                continue
            if live is None or live.link.connected or await self._found_dead(session_id):
                return

    async def _is_coming(self, session_id: str) -> bool:
        """Whether it is still being made, or woken: when it is there, it may be dead already."""
        if self._operations.running(session_id):
            return True
        with contextlib.suppress(SessionNotFound):
            return (await self._store.get(session_id)).status == Status.RESUMING
        return False

    async def _found_dead(self, session_id: str) -> bool:
        try:
            info = await self._driver.inspect(self._driver.handle_for(session_id))
            dead, oom = info.state is SandboxState.STOPPED, info.oom_killed
            detail = "it ran out of memory" if oom else "its processes have ended"
        except SandboxNotFound:
            dead, oom, detail = True, False, "it is gone"
        except DriverError as error:
            log.warning("investigate.failed", session_id=session_id, error=error.message)
            return False
        if dead:
            row = await self._store.get(session_id)
            if row.status == Status.ACTIVE:
                await self._lifecycle.mark_crashed(row, detail, oom=oom)
            return row.status != Status.RESUMING
        return False
