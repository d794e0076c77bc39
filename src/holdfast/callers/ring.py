"""The keys that open this daemon, in memory: finding out who is calling costs one hash and no query.

A key is 256 random bits, so its plain SHA-256 is all that has to be kept: there is nothing to guess, which is what slow
password hashes are against. The hash is also how a key is looked up: what a stranger presents is hashed first, so the
time of the comparison says nothing about the keys.

A change made here takes effect at once; other daemons on the same database see it at their next refresh.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable

import structlog

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.callers.types import ROOT, ROOT_NAME, Caller, KeyView, Scope
from holdfast.errors import BadInput, HoldfastError
from holdfast.records.keys import KeyRow
from holdfast.store import KeyStore

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 2.0
SAVE_EVERY = 15
"""``last_used_at`` is written at every so many refreshes."""


def new_key() -> str:
    return f"hf_{secrets.token_urlsafe(32)}"


class KeyRing:
    """All keys: the root key, and those in the store. Use ``running()`` around its use: it keeps them fresh.

    ``max_sessions`` holds for keys that have no limit of their own; the root key has none.
    """

    def __init__(
        self, store: KeyStore, root_key: str, *, clock: Callable[[], float], max_sessions: int | None = None
    ) -> None:
        if not root_key:
            raise ValueError("the API key must not be empty")
        self._store = store
        self._clock = clock
        self._max_sessions = max_sessions
        self._root = _digest(root_key.encode())
        self._callers = {self._root: ROOT}
        self._ids = {ROOT.key_id}
        self._used: dict[str, float] = {}
        # Held during a refresh and during a change: a refresh that read before a removal must not bring the key back.
        self._changing = asyncio.Lock()

    # -- who is it? --------------------------------------------------------------------------------------------------

    def caller(self, presented: bytes, /) -> Caller | None:
        """Who presents this key; None if it opens nothing."""
        caller = self._callers.get(_digest(presented))
        if caller is not None and caller is not ROOT:
            self._used[caller.key_id] = self._clock()
        return caller

    def knows(self, caller: Caller, /) -> bool:
        """Say whether the caller's key is still there."""
        return self.has(caller.key_id)

    def has(self, key_id: str, /) -> bool:
        """Say whether there is a key with this id."""
        return key_id in self._ids

    def by_id(self, key_id: str, /) -> Caller | None:
        """Who has the key with this id; None if it is gone."""
        return next((caller for caller in self._callers.values() if caller.key_id == key_id), None)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def add(
        self,
        name: str,
        scope: Scope,
        /,
        *,
        owner: str | None,
        max_sessions: int | None,
        ceilings: Ceilings = NO_CEILINGS,
    ) -> tuple[KeyView, str]:
        """Return a new key, and its text, which is kept nowhere. Raises ``Conflict`` if the name is taken."""
        if name == ROOT_NAME:
            raise BadInput(f"name: {ROOT_NAME} is the key of the daemon itself; take another name")
        text = new_key()
        row = KeyRow(
            id=f"key_{secrets.token_hex(8)}",
            name=name,
            scope=scope,
            owner=owner or name,
            hash=_digest(text.encode()).hex(),
            max_sessions=max_sessions,
            created_at=self._clock(),
            max_cpus=ceilings.max_cpus,
            max_memory_mb=ceilings.max_memory_mb,
            max_pids=ceilings.max_pids,
            max_disk_mb=ceilings.max_disk_mb,
        )
        async with self._changing:
            await self._store.add(row)
            self._put(row)
        log.info("key.added", key=name, scope=scope, owner=row.owner)
        return self._view(row), text

    async def list(self) -> list[KeyView]:
        """By name, without the root key."""
        return [self._view(row) for row in await self._store.all()]

    async def remove(self, name: str, /) -> None:
        """Lock a key out; sessions of its owner stay as they are. Raises ``KeyNotFound``."""
        if name == ROOT_NAME:
            raise BadInput(f"{ROOT_NAME} is the key of the daemon itself; change api_key and start the daemon again")
        async with self._changing:
            removed = await self._store.remove(name)
            self._drop(removed)
        log.info("key.removed", key=name)

    # -- running -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know the keys from the first request on, and follow their changes until the end."""
        await self.refresh()
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            with contextlib.suppress(HoldfastError):
                await self.save_used()

    async def _watch(self) -> None:
        """For ever. While the database does not answer, the keys stay as last known."""
        rounds = 0
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            rounds += 1
            try:
                await self.refresh()
                if rounds % SAVE_EVERY == 0:
                    await self.save_used()
            except HoldfastError as error:
                log.warning("keys.refresh.failed", code=error.code, error=error.message, next="keys stay as last known")
            except Exception:
                log.exception("keys.refresh.failed", next="keys stay as last known")

    async def refresh(self) -> None:
        """Take over what other daemons have changed."""
        async with self._changing:
            rows = await self._store.all()
            self._callers = {self._root: ROOT}
            self._ids = {ROOT.key_id}
            for row in rows:
                self._put(row)

    async def save_used(self) -> None:
        """Write down when keys were last used: in batches, for a request must not cost a write."""
        used, self._used = self._used, {}
        try:
            await self._store.note_use(list(used.items()))
        except HoldfastError:
            self._used = used | self._used
            raise

    def _put(self, row: KeyRow) -> None:
        limit = self._max_sessions if row.max_sessions is None else row.max_sessions
        caller = Caller(row.id, row.name, Scope(row.scope), row.owner, limit, _ceilings(row))
        self._callers.setdefault(bytes.fromhex(row.hash), caller)
        self._ids.add(row.id)

    def _drop(self, row: KeyRow) -> None:
        self._callers.pop(bytes.fromhex(row.hash), None)
        self._ids.discard(row.id)

    def _view(self, row: KeyRow) -> KeyView:
        known = [moment for moment in (row.last_used_at, self._used.get(row.id)) if moment is not None]
        return KeyView(
            id=row.id,
            name=row.name,
            scope=Scope(row.scope),
            owner=row.owner,
            max_sessions=row.max_sessions,
            created_at=row.created_at,
            last_used_at=max(known, default=None),
            ceilings=_ceilings(row),
        )


def _ceilings(row: KeyRow) -> Ceilings:
    return Ceilings(row.max_cpus, row.max_memory_mb, row.max_pids, row.max_disk_mb)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
