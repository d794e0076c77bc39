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
from collections.abc import Callable

import structlog

from holdfast.drivers.base import Handle, SandboxInfo, SandboxState
from holdfast.errors import Conflict, DriverUnsupported, HoldfastError, SandboxLost, SandboxNotFound, WrongState
from holdfast.link.link import Link
from holdfast.records.machine import Event, PausedAs, Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.sessions.context import Context
from holdfast.sessions.session import Session, Sessions, unusable
from holdfast.sessions.use.using import Using

log = structlog.get_logger(__name__)

SHELL_SECONDS = 20.0
QUIESCE_SECONDS = 20.0
UNDER_WAY_SECONDS = 90.0
"""A checkpoint that a dead daemon has begun ends sooner, one way or the other."""
_LOOK_SECONDS = 0.05
_WAY_OUT = 'to go on with its files and shells alone, restore it with {"as": "files"} (`holdfast wake ID --files`)'
FREEZE_SECONDS = 2.0
_SHARED = "wake:"
_CAN_WAKE = (Status.ACTIVE, Status.PAUSED, Status.PAUSING, Status.RESUMING)
"""Also ``active``: the row says so a moment before it can be used."""


class Sleep(Using):
    """Puts the sessions of one node to sleep and wakes them, also those that are to be used."""

    def __init__(self, context: Context, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions

    # -- to sleep ----------------------------------------------------------------------------------------------------

    async def pause(self, session_id: str, how: PausedAs | None) -> SessionRow:
        """From ``active`` to ``paused``; None is the best way that lets go of all processes.

        Already so, or deeper, is fine. What sleeps less deeply is woken first.
        """
        how = how or self.deepest
        self._check_ability(how)
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            row = session.record
            if row.status == Status.PAUSED:
                if how in (row.paused_as, PausedAs.FROZEN) or row.paused_as == PausedAs.FILES:
                    return row
                await session.lease()
                await self._wake(session)
            await self._put_to_sleep(session, how)
        return session.record

    async def put_on_disk(self, session_id: str) -> bool:
        """Keep the memory of an active session on disk; False if it was not active. Raises ``Conflict`` if in use."""
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            if session.record.status != Status.ACTIVE:
                return False
            await self._put_to_sleep(session, PausedAs.MEMORY)
        return session.record.paused_as == PausedAs.MEMORY

    @property
    def deepest(self) -> PausedAs:
        """The best way to hold no process any more."""
        return PausedAs.MEMORY if self._context.driver.capabilities.memory else PausedAs.FILES

    def can(self, how: PausedAs) -> bool:
        able = self._context.driver.capabilities
        return {PausedAs.FROZEN: able.pause, PausedAs.MEMORY: able.memory, PausedAs.FILES: able.stop}[how]

    def _check_ability(self, how: PausedAs) -> None:
        if self.can(how):
            return
        if how is PausedAs.MEMORY:
            raise DriverUnsupported(
                "memory is kept by gVisor only: set driver: oci and runtime: runsc for sessions to come; of this one "
                "the files can be kept (`holdfast sleep ID --files`, or as: files)"
            )
        name = self._context.driver.name
        raise DriverUnsupported(f"the {name} driver cannot do that here; `holdfast doctor` says why")

    def _check_idle(self, row: SessionRow) -> None:
        if row.status != Status.ACTIVE:
            raise WrongState(f"session {row.id} is {row.status}; only an active one can be put to sleep")
        live = self._sessions.live(row.id)
        if live is not None and live.link.held is not None:
            raise live.link.held
        if live is not None and live.busy:
            raise Conflict(f"session {row.id} is in use; wait for the end of its commands, or cancel them")

    async def _put_to_sleep(self, session: Session, how: PausedAs) -> None:
        self._check_idle(session.record)
        await session.lease()
        await self._context.store.touch(self._sessions.take_unsaved(session.id))
        await session.step(Event.PAUSE, {"paused_as": how})
        self._sessions.forget(session.id)
        try:
            if how is PausedAs.FROZEN:
                await self._freeze(session)
            else:
                await self._stop(session, how)
        except HoldfastError as error:
            log.warning("session.pause.failed", session_id=session.id, paused_as=how, error=error.message)
            if how is PausedAs.MEMORY and await self._is_stopped(session):
                await self._fall_asleep(session, PausedAs.FILES, f"its memory was not kept: {error.message}")
                return
            await self._stay_awake(session)
            raise
        await self._fall_asleep(session, how)

    async def _is_stopped(self, session: Session) -> bool:
        """Say whether a runtime that could not keep its memory has ended it."""
        try:
            return (await self._context.driver.inspect(session.handle)).state is SandboxState.STOPPED
        except HoldfastError:
            return False

    async def _stay_awake(self, session: Session) -> None:
        """It could not be put to sleep, and can be used again."""
        await self._context.shells.remove(session.id)
        await session.step(Event.GAVE_UP, {"paused_as": None})
        await session.listen()
        self._sessions.adopt(session)
        await session.release()

    async def _fall_asleep(self, session: Session, how: PausedAs, trouble: str | None = None) -> None:
        """From here on it is paused; how long it may sleep is its policy's to say."""
        now = self._context.clock()
        values: SessionChange = {"paused_at": now, "paused_as": how, "error": trouble}
        destroy_after = session.record.spec.sleep.destroy_after_seconds
        if destroy_after is not None and how is not PausedAs.FROZEN:
            values["expires_at"] = now + destroy_after
        await session.step(Event.PAUSED, values)
        await session.release()
        log.info("session.paused", session_id=session.id, paused_as=how)

    async def _freeze(self, session: Session) -> None:
        """Shells are kept too, for who copies it in its sleep or finds it dead; one that cannot tell is no obstacle."""
        link = self._context.hub.get(session.id)
        if link is not None and link.connected:
            try:
                saved = await link.call("shells.save", {"running": True}, timeout=FREEZE_SECONDS)
                await self._context.shells.write(session.id, saved, lasting=False)
            except HoldfastError as error:
                log.info("session.shells.not_kept", session_id=session.id, error=error.message)
        await self._context.driver.pause(session.handle)

    async def _stop(self, session: Session, how: PausedAs) -> None:
        """First the shells, then everything else: who cannot tell its state goes on running.

        The shells are kept with memory too: they are the way out if it cannot be restored.
        """
        link = self._context.hub.get(session.id)
        if link is None:
            raise WrongState(f"session {session.id} has no link yet; try again")
        saved = await link.call("shells.save", {}, timeout=SHELL_SECONDS)
        await self._context.shells.write(session.id, saved)
        if how is PausedAs.FILES:
            await self._context.driver.stop(session.handle)
            return
        await self._context.hub.quiesce(session.id, timeout=QUIESCE_SECONDS)
        await self._context.driver.checkpoint(session.handle)

    # -- awake -------------------------------------------------------------------------------------------------------

    async def wake(self, session_id: str, how: PausedAs | None = None) -> tuple[SessionRow, PausedAs | None]:
        """From ``paused`` to ``active``, and what came back; one that is active is left alone.

        ``how`` as ``FILES`` gives up the memory that was kept: the way out where it cannot be restored.
        """
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            row = session.record
            if row.status == Status.ACTIVE:
                return row, None
            if row.status != Status.PAUSED:
                raise WrongState(f"session {session_id} is {row.status}; only a sleeping one can be woken")
            await session.lease()
            if how is PausedAs.FILES and session.record.paused_as == PausedAs.MEMORY:
                await self._give_up_memory(session)
            came_as = await self._wake(session)
        return session.record, came_as

    async def _give_up_memory(self, session: Session) -> None:
        """What was restored from it and never answered goes with it."""
        driver = self._context.driver
        if (await driver.inspect(session.handle)).state is not SandboxState.STOPPED:
            await driver.stop(session.handle)
        await session.set({"paused_as": PausedAs.FILES})

    async def revive(self, session_id: str) -> SessionRow:
        """From ``error`` to ``active``, with what is left of it: its files, and its shells if they were kept."""
        self._check_ability(PausedAs.FILES)
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            await session.lease()
            try:
                await self._context.driver.inspect(session.handle)
                await session.step(Event.REVIVE, {"paused_as": PausedAs.FILES})
            except (SandboxNotFound, WrongState) as error:
                await session.release()
                raise WrongState(f"session {session_id} cannot be brought back: {error.message}; destroy it") from None
            await self._wake_from(session)
        return session.record

    async def _wake(self, session: Session) -> PausedAs:
        await session.step(Event.RESUME)
        return await self._wake_from(session)

    async def _wake_from(self, session: Session) -> PausedAs:
        slept_as = session.record.paused_as
        try:
            came_as = await self._rouse(session)
        except HoldfastError as error:
            log.warning("session.wake.failed", session_id=session.id, paused_as=slept_as, error=error.message)
            has_way_out = slept_as == PausedAs.MEMORY
            message = f"{error.message}; {_WAY_OUT}" if has_way_out else error.message
            await self._sleep_on(session, f"wake: {message}")
            if has_way_out:
                raise type(error)(message) from error
            raise
        await self._awake(session)
        return came_as

    async def _sleep_on(self, session: Session, trouble: str) -> None:
        """It sleeps on; or, if it was dead, it stays so. A row that is resuming has a reason only then."""
        if session.record.reason is None:
            await session.step(Event.GAVE_UP)
            await session.set({"error": trouble})
        else:
            await session.step(Event.FAILED, {"paused_as": None, "error": trouble})
        await session.release()

    async def _rouse(self, session: Session) -> PausedAs:
        """Whatever of it is not done yet: safe to repeat after a crash. Returns what came back."""
        driver, connect_seconds = self._context.driver, self._context.settings.connect_seconds
        slept_as = session.record.paused_as or PausedAs.FROZEN
        link = await session.listen()
        if slept_as is PausedAs.FROZEN:
            await driver.resume(session.handle)
            await link.wait_connected(connect_seconds)
            return slept_as
        wants_memory = slept_as is PausedAs.MEMORY
        fact = await self._wait_while(lambda fact: fact.busy, await driver.inspect(session.handle))
        if fact.state is SandboxState.STOPPED:
            wants_memory = await driver.start(session.handle, memory=wants_memory)
        elif not wants_memory:
            await self._start_mute(session.handle, link)
        await link.wait_connected(connect_seconds)
        if not wants_memory:
            await self._load_shells(session)
        await self._context.way_out.open(link, session.record.spec)
        return PausedAs.MEMORY if wants_memory else PausedAs.FILES

    async def _start_mute(self, handle: Handle, link: Link) -> None:
        """What an earlier start has left is given its time; if it does not speak then, it never will."""
        try:
            await link.wait_connected(self._context.settings.connect_seconds)
        except SandboxLost as error:
            log.warning("session.wake.mute", session_id=link.session_id, error=error.message, next="started anew")
            await self._context.driver.stop(handle)
            await self._context.driver.start(handle, memory=False)

    async def _load_shells(self, session: Session) -> None:
        await session.give_environment(session.record.spec.env)
        shells = self._context.shells
        saved = await (shells.read(session.id) if session.record.reason is None else shells.find(session.id))
        if saved is not None:
            await session.link.call("shells.load", *saved, timeout=SHELL_SECONDS)

    async def _awake(self, session: Session) -> None:
        now, slept_as = self._context.clock(), session.record.paused_as
        values: SessionChange = {
            "paused_as": None,
            "paused_at": None,
            "reason": None,
            "error": None,
            "last_activity_at": now,
            "expires_at": now + session.record.ttl_seconds,
        }
        await session.step(Event.RESUMED, values)
        self._sessions.adopt(session)
        await session.release()
        await self._context.shells.remove(session.id)
        log.info("session.resumed", session_id=session.id, paused_as=slept_as)

    # -- for use -----------------------------------------------------------------------------------------------------

    def live(self, session_id: str) -> Session | None:
        return self._sessions.live(session_id)

    async def find(self, session_id: str) -> Session:
        session = self._sessions.live(session_id)
        if session is not None:
            return session
        row = await self._sessions.own_row(session_id)
        if row.status == Status.CREATING:
            await self._context.operations.wait(session_id)
            row = await self._sessions.own_row(session_id)
            session = self._sessions.live(session_id)
        if session is None and row.status in _CAN_WAKE:
            await self.share_wake(session_id)
            session = self._sessions.live(session_id)
        if session is None:
            raise unusable(await self._sessions.own_row(session_id))
        return session

    async def share_wake(self, session_id: str, how: PausedAs | None = None) -> tuple[SessionRow, PausedAs | None]:
        """As ``wake``; callers share one wake, and wait for what is under way."""
        row = await self._sessions.own_row(session_id)
        if row.status in (Status.PAUSING, Status.RESUMING):
            await self._context.operations.wait(session_id)
        if row.status in (Status.DESTROYING, Status.DESTROYED, Status.ERROR):
            raise unusable(row)
        return await self._context.operations.share(_SHARED + session_id, lambda: self.wake(session_id, how))

    # -- after a crash -----------------------------------------------------------------------------------------------

    async def settle(self, row: SessionRow, fact: SandboxInfo | None) -> str | None:
        """Finish what a dead daemon was about; ``fact`` is how the sandbox was found. Sleepers are only looked at.

        Returns what the sandbox died of, if it is dead.
        """
        state = fact.state if fact else None
        if row.status == Status.PAUSED:
            died = state is SandboxState.STOPPED and row.paused_as == PausedAs.FROZEN
            return "it is gone" if state is None else "it died in its sleep" if died else None
        async with self._sessions.alone(row.id):
            session = Session(self._context, row)
            await session.lease()
            if session.record.status == Status.PAUSING:
                return await self._settle_pausing(session, await self._wait_while(_is_ending, fact) if fact else None)
            if session.record.status == Status.RESUMING:
                return await self._settle_resuming(session, state)
        return None

    async def _wait_while(self, undecided: Callable[[SandboxInfo], bool], fact: SandboxInfo) -> SandboxInfo:
        """A checkpoint, or its restore, goes on without the daemon that began it; to begin it again would end it."""
        deadline = time.monotonic() + UNDER_WAY_SECONDS
        while undecided(fact) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            fact = await self._context.driver.inspect(fact.handle)
        return fact

    async def _settle_pausing(self, session: Session, fact: SandboxInfo | None) -> str | None:
        how = session.record.paused_as or PausedAs.FROZEN
        state = fact.state if fact else None
        if state is (SandboxState.PAUSED if how is PausedAs.FROZEN else SandboxState.STOPPED):
            has_memory = fact is not None and fact.memory
            await self._fall_asleep(session, PausedAs.FILES if how is PausedAs.MEMORY and not has_memory else how)
        elif state is SandboxState.RUNNING:
            await self._stay_awake(session)
        else:
            await session.release()
            return "it died while it was put to sleep"
        return None

    async def _settle_resuming(self, session: Session, state: SandboxState | None) -> str | None:
        if state is None:
            await session.release()
            return "it is gone"
        try:
            await self._rouse(session)
        except HoldfastError as error:
            log.warning(
                "session.wake.failed", session_id=session.id, error=error.message, next="it is as it was before"
            )
            await self._sleep_on(session, f"wake: {error.message}")
        else:
            await self._awake(session)
        return None


def _is_ending(fact: SandboxInfo) -> bool:
    """Or its memory is complete, and the host has not taken note of its end yet."""
    return fact.busy or (fact.memory and fact.state is SandboxState.RUNNING)
