"""Keeps the pool full, and makes sessions of what is in it.

A sandbox that is given out and then not used after all goes back only if nothing was done to it; whatever else happens
to a pooled sandbox, it is destroyed, or left to the reconciler, which decides by whether it has a row.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import structlog

from holdfast.callers.types import ROOT
from holdfast.concurrency import cancel_and_wait
from holdfast.errors import HoldfastError, IdempotencyMismatch, TooManySessions, UnknownImage
from holdfast.records.sessions import SessionRow
from holdfast.sessions.context import Context
from holdfast.sessions.create.planning import Planning
from holdfast.sessions.life import Life
from holdfast.sessions.pool.pool import Pool, WarmSandbox
from holdfast.sessions.pool.warmth import Borrowed, Warmer
from holdfast.sessions.session import Session
from holdfast.sessions.types import CreateRequest

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.1
"""Before each sandbox: who has just taken one is about to use it, and goes first."""
_PATIENCE_SECONDS = 5.0
"""How long a refill lets callers that wait for a new sandbox go first; under steady load it still gets its turn."""
_LONGEST_BACKOFF_SECONDS = 60.0
_CLOSE_SECONDS = 5.0

_WARM_PAUSE_SECONDS = 1.0
"""The same where more than a sandbox is started: that takes a core for a while, and who took the last one works now."""
_WARM_SECONDS = 120.0
"""How long making one sandbox ready for its purpose may take."""


class PoolKeeper:
    """One pool's only owner."""

    def __init__(self, context: Context, life: Life, planning: Planning) -> None:
        settings, metrics = context.settings, context.metrics
        self._context = context
        self._operations = context.operations
        self._life = life
        self._planning = planning
        self._pool = Pool({**settings.pool, **settings.warm_pool})
        self._borrowed = Borrowed(context)
        self._purposes = frozenset(settings.warm_pool)
        self._warmers: dict[str, Warmer] = {}
        self._making: SessionRow | None = None
        self._creates = 0
        self._quiet = asyncio.Event()
        self._needed = asyncio.Event()
        self._failures = dict.fromkeys(self._pool.kinds, 0)
        self._not_before = dict.fromkeys(self._pool.kinds, 0.0)
        for kind in self._pool.kinds:
            metrics.pool_ready.labels(kind).set_function(partial(self._pool.count_ready, kind))

    def warm_by(self, kind: str, warmer: Warmer) -> None:
        """Who makes sandboxes of this kind ready; until somebody does, none is made."""
        self._warmers[kind] = warmer
        self._needed.set()

    # -- giving out --------------------------------------------------------------------------------------------------

    def take(self, row: SessionRow, purpose: str | None = None) -> WarmSandbox | None:
        """Return a ready sandbox for this row. Whoever takes one calls ``claim`` with it."""
        ready = self._pool.take(row, purpose)
        if row.image in self._pool.kinds or any(warmer.purpose == purpose for warmer in self._warmers.values()):
            self._context.metrics.pool_creates.labels("hit" if ready else "miss").inc()
            self._needed.set()
        return ready

    async def claim(
        self, ready: WarmSandbox, row: SessionRow, *, max_owned: int | None
    ) -> tuple[SessionRow, bool] | None:
        """Make the session that ``row`` asks for out of ``ready``; as ``SessionStore.insert``.

        None if the sandbox turns out to be of no use, which costs the caller a cold create and nothing else. The
        environment comes before the row: no crash can leave a session that lacks it. So do a thread's ways out.
        """
        spec = row.spec
        opened = not spec.kept or ready.spec.kept
        clean = not spec.env and opened
        wanted = replace(row, id=ready.id, handle=ready.row.handle, cwd=ready.row.cwd)
        session = Session(self._context, wanted)
        try:
            await session.give_environment(spec.env)
            if not opened:
                await self._context.way_out.open(await session.listen(), spec)
        except HoldfastError as error:
            log.warning("pool.sandbox.unusable", session_id=ready.id, error=error.message)
            self._throw_away(ready.id)
            return None
        try:
            is_new = await self._life.admit(session, max_owned=max_owned)
        except (TooManySessions, IdempotencyMismatch):
            self._give_back(ready, clean=clean)
            raise
        except BaseException:  # whether there is a row, only the store knows: the reconciler will ask it
            self._pool.release(ready.id)
            raise
        if is_new:
            self._pool.release(ready.id)
        else:
            self._give_back(ready, clean=clean)
        return session.record, is_new

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """Around the making of a sandbox that a caller waits for: refills stand back."""
        self._creates += 1
        try:
            yield
        finally:
            self._creates -= 1
            if not self._creates:
                self._quiet.set()

    def _give_back(self, ready: WarmSandbox, *, clean: bool) -> None:
        if clean and self._pool.lacks(ready.kind):  # and was not replaced meanwhile
            self._pool.put(ready)
        else:
            self._throw_away(ready.id)

    def owns(self, session_id: str) -> bool:
        """Say whether the sandbox with this id is in the pool, or on its way there or out of it."""
        return self._pool.owns(session_id)

    def lost(self, session_id: str) -> bool:
        """A runner has hung up; whether it was that of a sandbox that waits here."""
        if self._pool.withdraw(session_id) is None:
            return False
        log.warning("pool.sandbox.lost", session_id=session_id, next="another one is made")
        self._throw_away(session_id)
        return True

    def _throw_away(self, session_id: str) -> None:
        self._operations.spawn(f"discard:{session_id}", lambda: self._discard(session_id))

    async def _discard(self, session_id: str) -> None:
        try:
            await self._life.discard(session_id, f"the sandbox {session_id} was not needed any more")
        except HoldfastError as error:
            log.warning("pool.discard.failed", session_id=session_id, error=error.message, next="tried on each tick")
        finally:
            self._pool.release(session_id)  # what is still there is a stray now
            self._needed.set()

    # -- filling -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: make what is missing, one at a time, behind every caller that waits for a sandbox."""
        while True:
            kind = self._pool.most_wanted(self._due())
            if kind is None:
                await self._wait_for_need()
            else:
                await self._wait_for_quiet(_WARM_PAUSE_SECONDS if kind in self._purposes else _PAUSE_SECONDS)
                await self._add(kind)

    def _due(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        known = [kind for kind in self._not_before if kind not in self._purposes or kind in self._warmers]
        return [kind for kind in known if self._not_before[kind] <= now]

    async def _wait_for_need(self) -> None:
        now = asyncio.get_running_loop().time()
        later = [at for at in self._not_before.values() if at > now]
        self._needed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(later, default=None)):
                await self._needed.wait()

    async def _wait_for_quiet(self, pause: float) -> None:
        await asyncio.sleep(pause)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self._creates:
                    self._quiet.clear()
                    await self._quiet.wait()

    async def _add(self, kind: str) -> None:
        try:
            session = await self._plan_one(kind)
        except HoldfastError as error:
            self._back_off(kind, error)
            return
        self._making = session.record
        self._pool.reserve(session.id, kind)
        try:
            ready = await self._prepare(session, kind)
        except Exception as error:
            self._back_off(kind, error)
            await self._discard(session.id)
            return
        finally:
            self._making = None
        self._pool.put(ready)
        self._failures[kind] = 0
        log.info("pool.sandbox.ready", session_id=ready.id, image=kind, ready=self._pool.count_ready(kind))

    async def _plan_one(self, kind: str) -> Session:
        warmer = self._warmers.get(kind)
        request = CreateRequest(image=kind) if warmer is None else warmer.request()
        return await self._planning.session(request, None, ROOT.owner)

    async def _prepare(self, session: Session, kind: str) -> WarmSandbox:
        row = await self._life.prepare(session)
        warmer = self._warmers.get(kind)
        if warmer is None:
            return WarmSandbox.of(row)
        fingerprint = await warmer.fingerprint()  # before: what changes meanwhile is noticed
        with self._borrowed.borrow(session) as sandbox:
            async with asyncio.timeout(_WARM_SECONDS):
                await warmer.warm(row.id, sandbox)
        return WarmSandbox.of(row, kind=kind, purpose=warmer.purpose, fingerprint=fingerprint)

    def _back_off(self, kind: str, error: Exception) -> None:
        seconds = min(2.0 ** self._failures[kind], _LONGEST_BACKOFF_SECONDS)
        self._failures[kind] += 1
        self._not_before[kind] = asyncio.get_running_loop().time() + seconds
        foreseen = isinstance(error, HoldfastError)
        log.warning(
            "pool.refill.failed",
            image=kind,
            error=str(error) or type(error).__name__,
            next=f"tried again in {seconds:.0f} s; creates go on without the pool",
            exc_info=None if foreseen else error,
        )

    # -- watching ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Throw away what no create would get any more: its image was replaced or removed, or what was started in it
        would be started otherwise now."""
        for kind in self._pool.kinds:
            if not self._pool.ready(kind):
                continue
            try:
                row: SessionRow | None = (await self._plan_one(kind)).record
                warmer = self._warmers.get(kind)
                fingerprint = "" if warmer is None else await warmer.fingerprint()
            except UnknownImage:
                row, fingerprint = None, ""
            except HoldfastError as error:
                log.warning("pool.refresh.failed", image=kind, error=error.message, next="looked at on the next tick")
                continue
            for ready in self._pool.ready(kind):
                same = ready.fingerprint == fingerprint
                if row is None or not same or not ready.fits(row, row.spec, ready.purpose):
                    log.info("pool.sandbox.outdated", session_id=ready.id, image=kind)
                    self._pool.withdraw(ready.id)
                    self._throw_away(ready.id)

    def layouts(self) -> list[str]:
        """Return the trees that pooled sandboxes stand on: not to be removed."""
        everything = [ready.spec for kind in self._pool.kinds for ready in self._pool.ready(kind)]
        if self._making is not None:
            everything.append(self._making.spec)
        return [spec.layout for spec in everything if spec.layout]

    async def close(self) -> None:
        """Remove all of it, once no claim is under way. What is not gone in time, the next daemon finds and removes."""
        discards = [asyncio.create_task(self._discard(session_id)) for session_id in self._pool.everything()]
        if discards:
            await asyncio.wait(discards, timeout=_CLOSE_SECONDS)
            await cancel_and_wait(*discards)
