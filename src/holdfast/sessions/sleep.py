"""Putting sessions to sleep and waking them: frozen in memory, or stopped with their memory or only their files kept.

| asleep as | what is kept                              | what it costs                 |
| --------- | ----------------------------------------- | ----------------------------- |
| frozen    | everything: processes stand still         | its memory                    |
| memory    | everything: processes go on               | disk space for what it holds, |
|           |                                           | its memory among it           |
| files     | files; each shell's directory, variables, | disk space for what it holds  |
|           | functions and options                     |                               |

A step that fails leaves what was there before: who could not be put to sleep stays active, who could not be woken
sleeps on. A daemon that dies in between leaves a row that says what it was about; the next one looks at the sandbox
and finishes it, one way or the other.
"""

import asyncio
import time

import structlog

from holdfast.drivers.base import Driver, Handle, SandboxInfo, SandboxState
from holdfast.errors import Conflict, DriverUnsupported, HoldfastError, SandboxLost, SandboxNotFound, WrongState
from holdfast.link.hub import LinkHub
from holdfast.link.link import Link
from holdfast.records.machine import Event, PausedAs, Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.records.spec import SessionSpec
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import Clock, LiveSessions
from holdfast.sessions.row_steps import RowSteps
from holdfast.store import SessionStore

log = structlog.get_logger(__name__)

SHELL_SECONDS = 20.0
QUIESCE_SECONDS = 20.0
UNDER_WAY_SECONDS = 90.0
"""A checkpoint that a dead daemon has begun ends sooner, one way or the other."""
_LOOK_SECONDS = 0.05
_WAY_OUT = 'to go on with its files and shells alone, restore it with {"as": "files"} (`holdfast wake ID --files`)'
FREEZE_SECONDS = 2.0


class Sleep:
    """One node's sleepers."""

    def __init__(
        self,
        store: SessionStore,
        driver: Driver,
        hub: LinkHub,
        live: LiveSessions,
        lifecycle: Lifecycle,
        rows: RowSteps,
        shells: SavedShells,
        *,
        clock: Clock,
        connect_seconds: float,
    ) -> None:
        self._store = store
        self._driver = driver
        self._hub = hub
        self._live = live
        self._lifecycle = lifecycle
        self._rows = rows
        self._shells = shells
        self._clock = clock
        self._connect_seconds = connect_seconds

    # -- to sleep ----------------------------------------------------------------------------------------------------

    async def pause(self, session_id: str, how: PausedAs | None) -> SessionRow:
        """From ``active`` to ``paused``; None is the best way that lets go of all processes.

        Already so, or deeper, is fine. What sleeps less deeply is woken first.
        """
        how = how or self.deepest
        self._check_ability(how)
        async with self._lifecycle.alone(session_id):
            row = await self._store.get(session_id)
            if row.status == Status.PAUSED and (how in (row.paused_as, PausedAs.FROZEN) or _is_files(row)):
                return row
            if row.status == Status.PAUSED:
                row, _ = await self._wake(await self._rows.lease(session_id))
            self._check_idle(row)
            row = await self._rows.lease(session_id)
            return await self._pause(row, how)

    async def put_on_disk(self, session_id: str) -> bool:
        """Keep the memory of an active session on disk; False if it was not active. Raises ``Conflict`` if in use."""
        async with self._lifecycle.alone(session_id):
            row = await self._store.get(session_id)
            if row.status != Status.ACTIVE:
                return False
            self._check_idle(row)
            row = await self._pause(await self._rows.lease(session_id), PausedAs.MEMORY)
            return row.paused_as == PausedAs.MEMORY

    @property
    def deepest(self) -> PausedAs:
        """The best way to hold no process any more."""
        return PausedAs.MEMORY if self._driver.capabilities.memory else PausedAs.FILES

    def can(self, how: PausedAs) -> bool:
        able = self._driver.capabilities
        return {PausedAs.FROZEN: able.pause, PausedAs.MEMORY: able.memory, PausedAs.FILES: able.stop}[how]

    def _check_ability(self, how: PausedAs) -> None:
        if self.can(how):
            return
        if how is PausedAs.MEMORY:
            raise DriverUnsupported(
                "memory is kept by gVisor only: set driver: oci and runtime: runsc for sessions to come; of this one "
                "the files can be kept (`holdfast sleep ID --files`, or as: files)"
            )
        raise DriverUnsupported(f"the {self._driver.name} driver cannot do that here; `holdfast doctor` says why")

    def _check_idle(self, row: SessionRow) -> None:
        if row.status != Status.ACTIVE:
            raise WrongState(f"session {row.id} is {row.status}; only an active one can be put to sleep")
        live = self._live.get(row.id)
        if live is not None and live.link.held is not None:
            raise live.link.held
        if live is not None and live.users:
            raise Conflict(f"session {row.id} is in use; wait for the end of its commands, or cancel them")

    async def _pause(self, row: SessionRow, how: PausedAs) -> SessionRow:
        await self._store.touch(self._live.take_unsaved(row.id))
        row = await self._rows.change(row, Event.PAUSE, {"paused_as": how})
        self._live.remove(row.id)
        try:
            if how is PausedAs.FROZEN:
                await self._freeze(row)
            else:
                await self._stop(row, how)
        except HoldfastError as error:
            log.warning("session.pause.failed", session_id=row.id, paused_as=how, error=error.message)
            if how is PausedAs.MEMORY and await self._is_stopped(row):
                return await self._asleep(row, PausedAs.FILES, f"its memory was not kept: {error.message}")
            await self._shells.remove(row.id)
            row = await self._rows.change(row, Event.GAVE_UP, {"paused_as": None})
            await self._lifecycle.listen(row)
            self._lifecycle.adopt_row(row)
            await self._rows.release(row)
            raise
        return await self._asleep(row, how)

    async def _is_stopped(self, row: SessionRow) -> bool:
        """Whether a runtime that could not keep its memory has ended it."""
        try:
            return (await self._driver.inspect(self._driver.handle_for(row.id))).state is SandboxState.STOPPED
        except HoldfastError:
            return False

    async def _asleep(self, row: SessionRow, how: PausedAs, trouble: str | None = None) -> SessionRow:
        """From here on it is paused; how long it may sleep is its policy's to say."""
        now = self._clock()
        values: SessionChange = {"paused_at": now, "paused_as": how, "error": trouble}
        destroy_after = row.spec.sleep.destroy_after_seconds
        if destroy_after is not None and how is not PausedAs.FROZEN:
            values["expires_at"] = now + destroy_after
        row = await self._rows.change(row, Event.PAUSED, values)
        await self._rows.release(row)
        log.info("session.paused", session_id=row.id, paused_as=row.paused_as)
        return row

    async def _freeze(self, row: SessionRow) -> None:
        """Shells are kept too, for who copies it in its sleep or finds it dead; one that cannot tell is no obstacle."""
        link = self._hub.get(row.id)
        if link is not None and link.connected:
            try:
                saved = await link.call("shells.save", {"running": True}, timeout=FREEZE_SECONDS)
                await self._shells.write(row.id, saved, lasting=False)
            except HoldfastError as error:
                log.info("session.shells.not_kept", session_id=row.id, error=error.message)
        await self._driver.pause(self._driver.handle_for(row.id))

    async def _stop(self, row: SessionRow, how: PausedAs) -> None:
        """First the shells, then everything else: who cannot tell its state goes on running.

        The shells are kept with memory too: they are the way out if it cannot be restored.
        """
        link = self._hub.get(row.id)
        if link is None:
            raise WrongState(f"session {row.id} has no link yet; try again")
        saved = await link.call("shells.save", {}, timeout=SHELL_SECONDS)
        await self._shells.write(row.id, saved)
        handle = self._driver.handle_for(row.id)
        if how is PausedAs.FILES:
            await self._driver.stop(handle)
            return
        await self._hub.quiesce(row.id, timeout=QUIESCE_SECONDS)
        await self._driver.checkpoint(handle)

    # -- awake -------------------------------------------------------------------------------------------------------

    async def wake(self, session_id: str, how: PausedAs | None = None) -> tuple[SessionRow, PausedAs | None]:
        """From ``paused`` to ``active``, and what came back; one that is active is left alone.

        ``how`` as ``FILES`` gives up the memory that was kept: the way out where it cannot be restored.
        """
        async with self._lifecycle.alone(session_id):
            row = await self._store.get(session_id)
            if row.status == Status.ACTIVE:
                return row, None
            if row.status != Status.PAUSED:
                raise WrongState(f"session {session_id} is {row.status}; only a sleeping one can be woken")
            row = await self._rows.lease(session_id)
            if how is PausedAs.FILES and row.paused_as == PausedAs.MEMORY:
                row = await self._give_up_memory(row)
            row, came_as = await self._wake(row)
            return row, came_as

    async def _give_up_memory(self, row: SessionRow) -> SessionRow:
        """What was restored from it and never answered goes with it."""
        handle = self._driver.handle_for(row.id)
        if (await self._driver.inspect(handle)).state is not SandboxState.STOPPED:
            await self._driver.stop(handle)
        return await self._rows.set(row, {"paused_as": PausedAs.FILES})

    async def revive(self, session_id: str) -> SessionRow:
        """From ``error`` to ``active``, with what is left of it: its files, and its shells if they were kept."""
        self._check_ability(PausedAs.FILES)
        async with self._lifecycle.alone(session_id):
            row = await self._rows.lease(session_id)
            try:
                await self._driver.inspect(self._driver.handle_for(session_id))
                row = await self._rows.change(row, Event.REVIVE, {"paused_as": PausedAs.FILES})
            except (SandboxNotFound, WrongState) as error:
                await self._rows.release(row)
                raise WrongState(f"session {session_id} cannot be brought back: {error.message}; destroy it") from None
            return (await self._wake_from(row))[0]

    async def _wake(self, row: SessionRow) -> tuple[SessionRow, PausedAs]:
        return await self._wake_from(await self._rows.change(row, Event.RESUME))

    async def _wake_from(self, row: SessionRow) -> tuple[SessionRow, PausedAs]:
        try:
            came_as = await self._rouse(row)
        except HoldfastError as error:
            log.warning("session.wake.failed", session_id=row.id, paused_as=row.paused_as, error=error.message)
            has_way_out = row.paused_as == PausedAs.MEMORY
            message = f"{error.message}; {_WAY_OUT}" if has_way_out else error.message
            await self._give_up(row, f"wake: {message}")
            if has_way_out:
                raise type(error)(message) from error
            raise
        return await self._awake(row), came_as

    async def _give_up(self, row: SessionRow, trouble: str) -> None:
        """It sleeps on; or, if it was dead, it stays so. A row that is resuming has a reason only then."""
        if row.reason is None:
            row = await self._rows.change(row, Event.GAVE_UP)
            await self._rows.note(row, trouble)
        else:
            row = await self._rows.change(row, Event.FAILED, {"paused_as": None, "error": trouble})
        await self._rows.release(row)

    async def _rouse(self, row: SessionRow) -> PausedAs:
        """Whatever of it is not done yet: safe to repeat after a crash. Returns what came back."""
        slept_as = PausedAs(row.paused_as or PausedAs.FROZEN)
        link = await self._lifecycle.listen(row)
        handle = self._driver.handle_for(row.id)
        if slept_as is PausedAs.FROZEN:
            await self._driver.resume(handle)
            await link.wait_connected(self._connect_seconds)
            return slept_as
        wants_memory = slept_as is PausedAs.MEMORY
        if (await self._come_to_rest(handle)).state is SandboxState.STOPPED:
            wants_memory = await self._driver.start(handle, memory=wants_memory)
        elif not wants_memory:
            await self._start_mute(handle, link)
        await link.wait_connected(self._connect_seconds)
        spec = row.spec
        if not wants_memory:
            await self._load_shells(row, link, spec)
        await self._lifecycle.open_ways_out(link, spec)
        return PausedAs.MEMORY if wants_memory else PausedAs.FILES

    async def _start_mute(self, handle: Handle, link: Link) -> None:
        """What an earlier start has left is given its time; if it does not speak then, it never will."""
        try:
            await link.wait_connected(self._connect_seconds)
        except SandboxLost as error:
            log.warning("session.wake.mute", session_id=link.session_id, error=error.message, next="started anew")
            await self._driver.stop(handle)
            await self._driver.start(handle, memory=False)

    async def _load_shells(self, row: SessionRow, link: Link, spec: SessionSpec) -> None:
        await self._lifecycle.give_environment(row.id, spec.env)
        saved = await (self._shells.read(row.id) if row.reason is None else self._shells.find(row.id))
        if saved is not None:
            await link.call("shells.load", *saved, timeout=SHELL_SECONDS)

    async def _awake(self, row: SessionRow) -> SessionRow:
        now = self._clock()
        values: SessionChange = {
            "paused_as": None,
            "paused_at": None,
            "reason": None,
            "error": None,
            "last_activity_at": now,
            "expires_at": now + row.ttl_seconds,
        }
        slept_as = row.paused_as
        row = await self._rows.change(row, Event.RESUMED, values)
        self._lifecycle.adopt_row(row)
        await self._rows.release(row)
        await self._shells.remove(row.id)
        log.info("session.resumed", session_id=row.id, paused_as=slept_as)
        return row

    # -- after a crash -----------------------------------------------------------------------------------------------

    async def settle(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        """Finish what a dead daemon was about; ``fact`` is how the sandbox was found. Sleepers are only looked at."""
        state = fact.state if fact else None
        if row.status == Status.PAUSED:
            if state is None or (state is SandboxState.STOPPED and row.paused_as == PausedAs.FROZEN):
                await self._lifecycle.mark_crashed(row, "it is gone" if state is None else "it died in its sleep")
            return
        async with self._lifecycle.alone(row.id):
            row = await self._rows.lease(row.id)
            if row.status == Status.PAUSING:
                await self._settle_pausing(row, await self._wait_until_decided(fact) if fact else None)
            elif row.status == Status.RESUMING:
                await self._settle_resuming(row, state)

    async def _come_to_rest(self, handle: Handle) -> SandboxInfo:
        """What a dead daemon has begun to bring back goes on without it: starting it once more would end it."""
        deadline = time.monotonic() + UNDER_WAY_SECONDS
        fact = await self._driver.inspect(handle)
        while fact.busy and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            fact = await self._driver.inspect(handle)
        return fact

    async def _wait_until_decided(self, fact: SandboxInfo) -> SandboxInfo:
        """A checkpoint goes on without the daemon that has begun it; who has its memory on disk is about to end."""
        deadline = time.monotonic() + UNDER_WAY_SECONDS
        while (fact.busy or _is_ending(fact)) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            fact = await self._driver.inspect(fact.handle)
        return fact

    async def _settle_pausing(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        how = PausedAs(row.paused_as or PausedAs.FROZEN)
        state = fact.state if fact else None
        if state is (SandboxState.PAUSED if how is PausedAs.FROZEN else SandboxState.STOPPED):
            has_memory = fact is not None and fact.memory
            await self._asleep(row, PausedAs.FILES if how is PausedAs.MEMORY and not has_memory else how)
        elif state is SandboxState.RUNNING:
            await self._shells.remove(row.id)
            row = await self._rows.change(row, Event.GAVE_UP, {"paused_as": None})
            await self._lifecycle.listen(row)
            self._lifecycle.adopt_row(row)
            await self._rows.release(row)
        else:
            await self._rows.release(row)
            await self._lifecycle.mark_crashed(row, "it died while it was put to sleep")

    async def _settle_resuming(self, row: SessionRow, state: SandboxState | None) -> None:
        if state is None:
            await self._rows.release(row)
            await self._lifecycle.mark_crashed(row, "it is gone")
            return
        try:
            await self._rouse(row)
        except HoldfastError as error:
            log.warning("session.wake.failed", session_id=row.id, error=error.message, next="it is as it was before")
            await self._give_up(row, f"wake: {error.message}")
            return
        await self._awake(row)

    async def forget(self, session_id: str) -> None:
        """Its shells, when the session is destroyed."""
        await self._shells.remove(session_id)


def _is_ending(fact: SandboxInfo) -> bool:
    """Its memory is complete; the host has not taken note of its end yet."""
    return fact.memory and fact.state is SandboxState.RUNNING


def _is_files(row: SessionRow) -> bool:
    return row.paused_as == PausedAs.FILES
