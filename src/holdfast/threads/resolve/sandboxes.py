"""The sandbox of a thread: found, woken, or made anew.

Only proof of absence lets us make a new one: a session that is unknown or destroyed, a sandbox that the driver has
looked for and not found, one that has died and cannot be brought back, or one on a host that was given up. Whatever
else goes wrong is raised, and tried again by the resolver.

A new one is asked for with an idempotency key that names the thread, how many it has had, and this host. So whoever
comes after a crash, between making it and writing it down, gets the very same sandbox.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from holdfast.agents.base import Place
from holdfast.callers.types import Caller, Scope
from holdfast.errors import (
    BadInput,
    CreateFailed,
    DriverUnsupported,
    FileMissing,
    HoldfastError,
    IdempotencyMismatch,
    RepoFailed,
    SandboxNotFound,
    SessionGone,
    SessionNotFound,
    SnapshotBroken,
    SnapshotNotFound,
    Unavailable,
    WrongState,
)
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.records.threads import Lease, ThreadRow
from holdfast.sessions.create.choices import KEPT_SECONDS
from holdfast.threads import options
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.names import DEFAULT_CHANNEL
from holdfast.threads.resolve import repos
from holdfast.threads.resolve.deadline import ResolveTime
from holdfast.threads.tools import Tools
from holdfast.threads.types import How, Repo
from holdfast.vocabulary.thread_files import DISPLAY
from holdfast.vocabulary.turn_events import Kind, TurnEvent

log = structlog.get_logger(__name__)

GONE: Final = (SessionNotFound, SessionGone, SandboxNotFound)
"""The only errors that prove that a sandbox is not there."""
_OVER = (Status.DESTROYING, Status.DESTROYED, Status.ERROR)
_UNUSABLE = (BadInput, SnapshotNotFound, SnapshotBroken, DriverUnsupported)
"""What says that a snapshot is of no use, now and later."""
_MOST_TRIES = 3
_PREFIX = "thread"


@dataclass(frozen=True, slots=True)
class Ready:
    """A sandbox that should answer."""

    thread: ThreadRow
    session_id: str
    how: How
    why: str | None = None
    told: bool = False
    """Whether that stands among the thread's events already."""


class Sandboxes:
    """All methods are called by who holds the thread's lease, one at a time per thread."""

    def __init__(self, tools: Tools, hosts: Hosts) -> None:
        self._tools = tools
        self._hosts = hosts
        self._keys: dict[str, str] = {}
        """What to ask with instead of a key whose create has failed for good, by that key."""

    async def ready(
        self, lease: Lease, row: ThreadRow, session: SessionRow | None, channel: str, time: ResolveTime
    ) -> Ready:
        """Return the thread's sandbox, awake. Raises whatever says nothing of its absence. ``session`` is that of its
        ``session_id`` as it is now; None if there is no such row. ``channel``: in which a new one is told of."""
        if row.session_id is None and row.incarnation == 0:
            return await self.make(lease, row, How.CREATED, "it is new", channel, time)
        if row.session_id is None:
            return await self.make(
                lease, row, How.RECREATED, "its sandbox was destroyed for want of use", channel, time
            )
        try:
            if session is None:
                raise SessionNotFound(f"there is no session {row.session_id}")
            return await self._there(row, session)
        except GONE as error:
            return await self.make(lease, row, How.RECREATED, error.message, channel, time)

    async def _there(self, row: ThreadRow, session: SessionRow) -> Ready:
        session_id = session.id
        if session.node != self._tools.node:
            raise await self._elsewhere(session)
        if session.status == Status.ACTIVE:
            return Ready(row, session_id, How.REUSED)
        if session.status == Status.ERROR:
            await self._revive(session)
            return self._resumed(row, session_id, f"its sandbox had died: {session.error}")
        await self._tools.sessions.files.check(session_id)  # waits for one that is being made; wakes one that sleeps
        slept = session.paused_as or session.status
        return self._resumed(row, session_id, f"it was asleep ({slept})")

    def _resumed(self, row: ThreadRow, session_id: str, why: str) -> Ready:
        self._tools.metrics.resumes.inc()
        return Ready(row, session_id, How.RESUMED, why)

    async def _elsewhere(self, session: SessionRow) -> HoldfastError:
        if await self._hosts.given_up(session.node):
            return SandboxNotFound(f"its host {session.node} has not been heard of for too long")
        return Unavailable(f"the sandbox is on the host {session.node}; the daemon there has to serve it")

    async def _revive(self, session: SessionRow) -> None:
        """Bring one that has died back from its files. Its row says that it is dead: no way back is proof enough."""
        try:
            await self._tools.sessions.revive(session.id)
        except DriverUnsupported:
            raise SandboxNotFound(f"its sandbox has died: {session.error}") from None
        except WrongState as error:
            if (await self._tools.store.sessions.get(session.id)).status != Status.ERROR:
                raise  # it is on its way somewhere: look again
            raise SandboxNotFound(f"its sandbox has died, and nothing of it is left: {error.message}") from None

    # -- a new one ---------------------------------------------------------------------------------------------------

    async def make(self, lease: Lease, row: ThreadRow, how: How, why: str, channel: str, time: ResolveTime) -> Ready:
        """Make a new one, also in place of one that is gone; ``why`` says so in words."""
        event = "sandbox.resolve.create" if how is How.CREATED else "sandbox.resolve.recreate"
        log.info(event, thread_id=row.id, key=row.key, how=how, why=why, old=row.session_id)
        with time.longer(self._tools.settings.make_seconds):
            session = await self._create_from_snapshot(lease, row) or await self._create(row, channel)
        old = row.session_id
        told = resolved(how, why, session.id)
        row = await self._tools.store.threads.set_session(lease, session.id, events=[told], channel=channel)
        self._tools.metrics.creates.labels(how).inc()
        if old is not None:
            await self.discard(old)
        return Ready(row, session.id, how, why, told=True)

    async def _create_from_snapshot(self, lease: Lease, row: ThreadRow) -> SessionRow | None:
        """Make one from the newest good snapshot that this host can read. The agent in it has an older memory."""
        if row.session_id is None:
            return None
        snapshots = await self._tools.sessions.snapshots.within_reach(row.session_id, owner=row.owner)
        if not snapshots:
            return None
        for channel in await self._tools.store.threads.channels(row.id):
            await self._tools.store.threads.change_channel(lease, channel.channel, {"agent_session_id": None})
        for snapshot in snapshots:
            try:
                return await self._create(row, snapshot=snapshot)
            except _UNUSABLE as error:
                log.warning("sandbox.snapshot.unusable", thread_id=row.id, snapshot_id=snapshot, error=error.message)
        return None

    async def _create(self, row: ThreadRow, channel: str = DEFAULT_CHANNEL, snapshot: str | None = None) -> SessionRow:
        """Ask with a key whose create has not failed for good. Who crashes with a random key leaves it to the sweep."""
        most, ceilings = options.max_sessions(row.settings), options.ceilings(row.settings)
        caller = Caller("", row.owner, Scope.USE, row.owner, most, ceilings)
        base = f"{_PREFIX}:{row.id}:{row.incarnation + 1}:{self._tools.node}"
        memory_mb = self._tools.settings.agent_memory_mb.get(row.agent)
        wish = options.request_for(options.from_json(row.settings), row.key, memory_mb)
        purpose = options.purpose_of(row.agent, row.settings) if channel == DEFAULT_CHANNEL else None
        request = replace(wish, snapshot=snapshot, purpose=purpose)
        for _ in range(_MOST_TRIES):
            key = self._keys.get(base, base)
            try:
                session = await self._tools.sessions.create(request, idempotency_key=key, caller=caller)
            except (CreateFailed, IdempotencyMismatch):
                self._keys[base] = f"{base}:{secrets.token_hex(8)}"
                continue
            if session.status not in _OVER:
                self._keys.pop(base, None)
                return session
            await self.discard(session.id)  # it was made, and lost before anybody could use it
            self._keys[base] = f"{base}:{secrets.token_hex(8)}"
        raise Unavailable(f"the sandbox of {row.key} could not be made {_MOST_TRIES} times; the daemon's log says why")

    async def discard(self, session_id: str) -> None:
        """Destroy one that is not the thread's any more. What cannot be done now is done by the sweep."""
        try:
            session = await self._tools.store.sessions.get(session_id)
            # One on another host is that host's: should it be back, its sweep keeps the files for a while.
            if session.node == self._tools.node:
                await self._tools.sessions.destroy(session_id)
        except SessionNotFound:
            return
        except HoldfastError as error:
            log.warning("sandbox.discard.failed", session_id=session_id, error=error.message, next="tried again")


def resolved(how: How, why: str | None, session_id: str) -> TurnEvent:
    return TurnEvent(Kind.RESOLVED, {"how": str(how), "why": why, "session_id": session_id})


def made_for(session: SessionRow) -> tuple[str, int] | None:
    """Return for which thread a session was made, and as which of its sandboxes; None if it belongs to none."""
    parts = (session.idempotency_key or "").split(":")
    if session.ttl_seconds != KEPT_SECONDS or len(parts) < 4 or parts[0] != _PREFIX or not parts[2].isdigit():
        return None  # callers from outside may use such a key, but cannot have a session kept
    return parts[1], int(parts[2])


class ThreadWorkspaces:
    """What a thread's sandbox is given before its agent works in it: a place for artifacts, and the repository.

    The thread's row notes what was given, and to which sandbox: so it is done once for each, and looked up for nothing.
    All methods are called by who holds the thread's lease, one at a time per thread.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def set_up(self, lease: Lease, ready: Ready, environment: Mapping[str, str]) -> Ready:
        """Put into the sandbox all that it begins with. Raises ``RepoFailed``, and what the session service raises."""
        if workdir_of(ready.thread) is not None:
            return ready
        await self._make_display(ready.session_id)
        repo = options.from_json(ready.thread.settings).repo
        if repo is not None:
            await self._clone(ready.session_id, repo, environment)
        workdir = repos.WORKSPACE if repo is None else repos.directory_of(repo)
        note = {"session_id": ready.session_id, "workdir": workdir, "repo": None if repo is None else repo.url}
        row = await self._tools.store.threads.change(lease, {"workspace": note})
        return replace(ready, thread=row)

    async def _make_display(self, session_id: str) -> None:
        """Make it where there is a workspace: a driver without isolation has none, and the host's root is not ours."""
        files = self._tools.sessions.files
        try:
            await files.stat(session_id, repos.WORKSPACE, follow=True)
        except FileMissing:
            return
        await files.mkdir(session_id, DISPLAY, parents=True, mode=None)

    async def keep(self, place: Place) -> None:
        """Make sure that there is the directory, which somebody may have removed: an agent cannot start without it."""
        if place.brief.workdir != repos.WORKSPACE:
            await self._tools.sessions.files.mkdir(place.session_id, place.brief.workdir, parents=True, mode=None)

    async def _clone(self, session_id: str, repo: Repo, environment: Mapping[str, str]) -> None:
        """Clone it; all tries together have ``clone_seconds``."""
        settings, processes = self._tools.settings, self._tools.sessions.processes
        loop = asyncio.get_running_loop()
        until = loop.time() + settings.clone_seconds
        for number in range(1, repos.TRIES + 1):
            try:
                await repos.clone(processes, session_id, repo, environment, seconds=round(until - loop.time(), 1))
            except RepoFailed as error:
                log.warning("repo.clone.failed", session_id=session_id, tries=number, error=error.message)
                if number == repos.TRIES or loop.time() + settings.retry_seconds >= until:
                    raise
                await self._tools.sleep(settings.retry_seconds)
            else:
                log.info("repo.clone.ok", session_id=session_id, repo=repos.shown(repo.url))
                return


def workdir_of(row: ThreadRow) -> str | None:
    """Return where the agent works; None while its sandbox has not been given all."""
    note = row.workspace
    if note is None or note.get("session_id") != row.session_id:
        return None
    return str(note["workdir"])
