"""The session: its record, its link, what only this daemon knows of it, and the steps of its row.

Using a session costs no database write: activity is noted here and written in batches. A crash loses at most a second
of it.
"""

import asyncio
import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import structlog

from holdfast.callers.types import Caller
from holdfast.concurrency import Bounded, KeyedLocks
from holdfast.drivers.base import Handle, ImageRoot, OomCounter, check_environment
from holdfast.errors import HoldfastError, SandboxLost, SessionGone, SessionNotFound, WrongState
from holdfast.link.link import Link
from holdfast.records.events import NewEvent
from holdfast.records.machine import LIVE, Event, Status, next_status, sources
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.sessions.context import Context
from holdfast.sessions.telling.event_kinds import TOLD, EventKind
from holdfast.sessions.types import ExecResult
from holdfast.store.sessions.rows import no_session

log = structlog.get_logger(__name__)

ENVIRONMENT_SECONDS = 2.0
"""A runner that waits for its first command answers within a millisecond."""
_OWNERS = 100_000
"""How many sessions' owners are remembered: far more than a machine holds sessions."""
_KILLED = 137
_REMEMBERED = 200
"""Commands whose beginning or verdict is kept: more than a runner keeps results of."""
_GONE = (Status.DESTROYING, Status.DESTROYED)


class OomWatch:
    """Which commands suffered when the kernel killed something in their sandbox for want of memory.

    The kernel counts kills per sandbox and does not say whom they hit. So a command has suffered one if the counter
    grew while it ran; commands that run at the same time, in other shells, share the memory and the verdict. Of a
    command that began under an earlier daemon only its end is known: it has suffered if it was killed and the sandbox
    has had kills. ``on_kill(count)`` is told of every kill once, whoever noticed it.
    """

    def __init__(self, counter: OomCounter | None, on_kill: Callable[[int], None]) -> None:
        self._counter = counter
        self._on_kill = on_kill
        self._seen = counter.read() if counter is not None else 0
        self._begun: Bounded[str, int] = Bounded(_REMEMBERED)
        self._verdicts: Bounded[str, bool] = Bounded(_REMEMBERED)

    def look(self) -> int:
        """Return how many kills there were. Costs microseconds."""
        if self._counter is not None:
            count = self._counter.read()
            if count > self._seen:
                new, self._seen = count - self._seen, count
                self._on_kill(new)
        return self._seen

    def begin(self, exec_id: str) -> None:
        """A command is about to run, or to be joined: then its first beginning counts."""
        self._begun.setdefault(exec_id, self.look())

    def end(self, exec_id: str, exit_code: int) -> bool:
        """Say whether the command with this result has suffered a kill; the same answer when asked again."""
        kills = self.look()
        before = self._begun.pop(exec_id, None)
        if before is not None:
            self._verdicts[exec_id] = self._verdicts.get(exec_id, False) or kills > before
        elif exec_id not in self._verdicts:
            self._verdicts[exec_id] = exit_code == _KILLED and kills > 0
        return self._verdicts[exec_id]

    def close(self) -> None:
        if self._counter is not None:
            self._counter.close()
            self._counter = None


def judged(watch: OomWatch, result: ExecResult) -> ExecResult:
    """Return the result, with what is known of its command's memory."""
    return replace(result, oom_killed=True) if watch.end(result.exec_id, result.exit_code) else result


class Session:
    """One session of this host.

    A verb works on it under its lock (``Sessions.alone``). Then ``record`` is its row, and each step of the row names
    the generation that came with the lease, so a daemon that was overtaken changes nothing. While the session can be
    used, ``Sessions`` has it, with its link and with what has become of it since its row was written.
    """

    def __init__(
        self, context: Context, record: SessionRow, *, image: ImageRoot | None = None, link: Link | None = None
    ) -> None:
        self._context = context
        self._link = link
        self.record = record
        self.image = image
        """The image that it is made from, where that is known already."""
        self.oom = OomWatch(None, lambda _kills: None)
        self.cwd = record.cwd
        self.last_activity_at = record.last_activity_at
        self.expires_at = record.expires_at
        self.unsaved = False
        self.users = 0
        self.running: dict[str, str] = {}
        """The commands that were started to be followed and have not ended, each with the name of its shell."""
        self.shells: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while a command runs in the shell of that name: commands of one shell run one after the other."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def handle(self) -> Handle:
        return self._context.driver.handle_for(self.id)

    # -- its link ------------------------------------------------------------------------------------------------------

    @property
    def link(self) -> Link:
        """Its link. Raises ``SandboxLost`` if it has none."""
        self._link = self._link or self._context.hub.get(self.id)
        if self._link is None:
            raise SandboxLost(f"the runner of {self.id} has hung up")
        return self._link

    async def listen(self) -> Link:
        """Open its link, with somebody at each way out: what runs in it may call as soon as its runner has dialled."""
        link = self._link = await self._context.hub.listen(self.id, self.token_of(self.id))
        link.on_disconnect = partial(self._context.on_hang_up, self.id)
        self._context.way_out.attach(link, self.record.spec)
        return link

    def token_of(self, session_id: str) -> str:
        """What a runner proves itself with. Derived, so that it is nowhere stored and any daemon here knows it."""
        return hmac.new(self._context.link_key, session_id.encode(), hashlib.sha256).hexdigest()

    async def give_environment(self, env: Mapping[str, str]) -> None:
        """Before its first command. Also proves that the runner answers."""
        check_environment(env)
        link = self.link
        if not link.connected:
            raise SandboxLost(f"the runner of {self.id} has hung up")
        await link.call("env", {"env": dict(env)}, timeout=ENVIRONMENT_SECONDS)

    # -- steps of its row ----------------------------------------------------------------------------------------------

    async def lease(self) -> None:
        """Take the lease of the row. From here on ``record`` is its newest state."""
        context = self._context
        ttl = context.settings.lease_seconds
        self.record = await context.store.acquire_lease(self.id, owner=context.node, now=context.clock(), ttl=ttl)

    async def release(self) -> None:
        await self._context.store.release_lease(self.id, owner=self._context.node, generation=self.record.generation)

    async def step(self, event: Event, values: SessionChange | None = None, notes: Sequence[NewEvent] = ()) -> None:
        """Take one step of the machine; ``values`` are set, and ``notes`` taken, along with it."""
        changes: SessionChange = {**(values or {}), "status": next_status(self.record.status, event)}
        self.record = await self._context.store.change(
            self.id,
            statuses=sources(event),
            generation=self.record.generation,
            now=self._context.clock(),
            values=changes,
            tell=TOLD[event],
            notes=notes,
        )

    async def set(self, values: SessionChange) -> None:
        """Change something but the status."""
        self.record = await self._context.store.change(
            self.id, statuses=LIVE, generation=self.record.generation, now=self._context.clock(), values=values
        )

    # -- its use -------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anybody uses it, or a command runs that was started to be followed."""
        return bool(self.users or self.running)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count as activity at the beginning and at the end, and keep the reaper away in between.

        What is lost because the session stands still says so.
        """
        self.users += 1
        self.touch(self._context.clock())
        try:
            yield
        except SandboxLost:
            if self.link.held is not None:
                raise self.link.held from None
            raise
        finally:
            self.users -= 1
            self.touch(self._context.clock())

    def touch(self, now: float) -> None:
        """It is being used: its time starts anew."""
        self.last_activity_at = max(self.last_activity_at, now)
        self.expires_at = max(self.expires_at, now + self.record.ttl_seconds)
        self.unsaved = True

    def move_times(self, seconds: float, now: float) -> None:
        """The clock was set by so much. What was noted after that needs no moving, so nothing gets later than now."""
        self.last_activity_at = min(self.last_activity_at + seconds, now)
        self.expires_at = min(self.expires_at + seconds, now + self.record.ttl_seconds)


class Sessions:
    """The sessions of this host: those that can be used now, by id, and the others by their rows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._live: dict[str, Session] = {}
        self._locks: KeyedLocks[str] = KeyedLocks()
        self._owners: Bounded[str, str] = Bounded(_OWNERS)
        context.metrics.live.set_function(lambda: len(self._live))

    def alone(self, session_id: str) -> asyncio.Lock:
        """Held by each verb: the lease keeps other daemons out, but not other tasks of this one."""
        return self._locks.of(session_id)

    # -- by their rows -------------------------------------------------------------------------------------------------

    async def own_row(self, session_id: str) -> SessionRow:
        """Its row, if it is of this host or gone; else raises ``WrongState`` that names the host."""
        row = await self._context.store.get(session_id)
        if row.node != self._context.node and row.status not in _GONE:
            raise elsewhere(row)
        return row

    async def find_row(self, session_id: str) -> SessionRow | None:
        """Its row, of whatever host; None where there is none."""
        try:
            return await self._context.store.get(session_id)
        except SessionNotFound:
            return None

    async def settled_row(self, session_id: str) -> SessionRow:
        """Its own row, when what is under way with it has ended."""
        row = await self.own_row(session_id)
        if row.status in (Status.CREATING, Status.PAUSING, Status.RESUMING):
            await self._context.operations.wait(session_id)
            row = await self.own_row(session_id)
        return row

    async def get(self, session_id: str) -> Session:
        """Return the session as its row is now, for a verb that has its lock."""
        row = await self.own_row(session_id)
        session = self._live.get(session_id) or Session(self._context, row)
        session.record = row
        return session

    async def admit(self, session_id: str, caller: Caller) -> None:
        """Return if the caller may know of this session; else raise ``SessionNotFound``, as if there were none.

        An owner never changes, so a match is remembered. Everything else asks the database each time, so that a session
        of somebody else takes as long as one that does not exist.
        """
        if caller.sees_all or self._owners.get(session_id) == caller.owner:
            return
        if await self._context.store.owner(session_id) != caller.owner:
            raise no_session(session_id)
        self._owners[session_id] = caller.owner

    def refreshed(self, row: SessionRow) -> SessionRow:
        """Return the row with what this daemon knows better: the latest directory, activity and time of expiry."""
        session = self._live.get(row.id)
        if session is None:
            return row
        return replace(
            row,
            cwd=session.cwd,
            expires_at=max(session.expires_at, row.expires_at),
            last_activity_at=max(session.last_activity_at, row.last_activity_at),
        )

    # -- those that can be used ----------------------------------------------------------------------------------------

    def live(self, session_id: str) -> Session | None:
        return self._live.get(session_id)

    def all(self) -> list[Session]:
        return list(self._live.values())

    def adopt(self, session: Session) -> None:
        """An active session whose link is open can be used from now on."""
        context, record = self._context, session.record
        if context.hub.get(session.id) is not None and session.id not in self._live:
            context.way_out.attach(session.link, record.spec)  # it may have been another's, out of the pool
            session.oom = OomWatch(context.driver.oom_counter(session.handle), partial(self._on_kill, session.id))
            session.cwd = record.cwd
            session.last_activity_at, session.expires_at = record.last_activity_at, record.expires_at
            self._live[session.id] = session

    def forget(self, session_id: str) -> None:
        """It cannot be used any more."""
        session = self._live.pop(session_id, None)
        if session is not None:
            session.oom.close()

    def _on_kill(self, session_id: str, kills: int) -> None:
        log.warning("session.oom", session_id=session_id, kills=kills, meaning="processes killed at the memory limit")
        tell = partial(self._tell_oom, session_id, kills)
        self._context.operations.attempt(f"oom:{session_id}", "oom.event", tell, session_id=session_id)

    async def _tell_oom(self, session_id: str, kills: int) -> None:
        """Write the event: something in this session was killed for memory, and the session lives on."""
        row = await self._context.store.get(session_id)
        now, data = self._context.clock(), told_of(row) | {"kills": kills}
        await self._context.store.events.record(EventKind.OOM, session_id, data=data, now=now, owner=row.owner)

    def take_unsaved(self, session_id: str | None = None) -> list[tuple[str, float, float, str]]:
        """Rows for ``SessionStore.touch``, of all or of one. If that fails, they are ``unsaved`` again."""
        unsaved = [one for one in self._live.values() if one.unsaved and session_id in (None, one.id)]
        for session in unsaved:
            session.unsaved = False
        return [(one.id, one.last_activity_at, one.expires_at, one.cwd) for one in unsaved]


def elsewhere(row: SessionRow) -> WrongState:
    """Return the error that says which host a session is on."""
    return WrongState(f"session {row.id} is on the host {row.node}; ask the daemon there")


def unusable(row: SessionRow) -> HoldfastError:
    """Return the error that says why a session in this state cannot be used."""
    if row.status in _GONE:
        return SessionGone(f"session {row.id} is {row.status}: {row.reason}; create a new one")
    if row.status == Status.ERROR:
        return WrongState(
            f"session {row.id} is in error ({row.reason}): {row.error}; bring it back from its files with "
            "POST …/restore (`holdfast wake --dead`), or destroy it"
        )
    return WrongState(f"session {row.id} is {row.status}, not active; try again")


def told_of(row: SessionRow) -> dict[str, object]:
    """Return what an event says of a session that it does not change."""
    return {"status": row.status, "image": row.image, "metadata": dict(row.metadata)}
