"""The key ring: who presents what, changes at once, what other daemons changed, and a database that is away."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.callers.ring import KeyRing, new_key
from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.errors import BadInput, Conflict, KeyNotFound, Unavailable
from holdfast.records.keys import KeyRow
from holdfast.store import KeyStore
from support.flaky_keys import FlakyKeys, flaky_keys
from support.waiting import until

pytestmark = pytest.mark.anyio


class Moments:
    """A clock that goes one second ahead each time somebody looks."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FlakyKeys]:
    async with flaky_keys(tmp_path) as store:
        yield store


@pytest.fixture
def ring(store: FlakyKeys) -> KeyRing:
    return KeyRing(store, "the-root-key", clock=Moments(), max_sessions=7)


async def add(ring: KeyRing, name: str, scope: Scope = Scope.USE, most: int | None = None) -> str:
    return (await ring.add(name, scope, owner=None, max_sessions=most))[1]


def who(ring: KeyRing, text: str) -> Caller:
    caller = ring.caller(text.encode())
    assert caller is not None
    return caller


def test_scopes_include_the_ones_before_them() -> None:
    allowed = {(one, other) for one in Scope for other in Scope if one.includes(other)}
    assert allowed == {
        (Scope.READ, Scope.READ),
        (Scope.USE, Scope.READ),
        (Scope.USE, Scope.USE),
        (Scope.ADMIN, Scope.READ),
        (Scope.ADMIN, Scope.USE),
        (Scope.ADMIN, Scope.ADMIN),
    }


def test_keys_are_long_and_never_the_same() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(text.startswith("hf_") and len(text) == 46 for text in made)


async def test_an_empty_root_key_is_refused(store: FlakyKeys) -> None:
    with pytest.raises(ValueError, match="empty"):
        KeyRing(store, "", clock=Moments())


@given(st.binary())
def test_nothing_but_a_key_opens(presented: bytes) -> None:
    ring = KeyRing(cast(KeyStore, None), "the-root-key", clock=Moments())  # which it does not ask
    assert ring.caller(presented) is (ROOT if presented == b"the-root-key" else None)


async def test_a_key_opens_from_its_making_to_its_removal(ring: KeyRing) -> None:
    text = await add(ring, "ada")
    ada = who(ring, text)
    assert (ada.name, ada.owner, ada.scope, ada.max_sessions, ada.sees_all) == ("ada", "ada", Scope.USE, 7, False)
    assert ring.knows(ada)
    assert ring.caller(text[:-1].encode()) is None
    await ring.remove("ada")
    assert ring.caller(text.encode()) is None
    assert not ring.knows(ada)
    assert ring.knows(ROOT)


async def test_owner_and_limit_can_be_given(ring: KeyRing) -> None:
    view, text = await ring.add("watcher", Scope.READ, owner="ada", max_sessions=0)
    assert (view.owner, who(ring, text).owner) == ("ada", "ada")
    assert (view.max_sessions, who(ring, text).max_sessions) == (0, 0)
    assert who(ring, await add(ring, "boss", Scope.ADMIN)).sees_all


async def test_only_the_hash_is_kept(ring: KeyRing, store: FlakyKeys) -> None:
    text = await add(ring, "ada")
    [row] = await store.all()
    assert row.hash == hashlib.sha256(text.encode()).hexdigest()
    assert text not in repr(row)


async def test_root_can_be_neither_added_nor_removed(ring: KeyRing) -> None:
    with pytest.raises(BadInput, match="root"):
        await add(ring, "root")
    with pytest.raises(BadInput, match="api_key"):
        await ring.remove("root")
    assert await ring.list() == []


async def test_a_name_is_taken_once_and_missed_when_gone(ring: KeyRing) -> None:
    text = await add(ring, "ada")
    with pytest.raises(Conflict):
        await add(ring, "ada")
    assert who(ring, text).name == "ada"
    await ring.remove("ada")
    with pytest.raises(KeyNotFound):
        await ring.remove("ada")


async def test_a_new_key_of_an_old_name_sees_the_same_sessions_with_another_text(ring: KeyRing) -> None:
    old = await add(ring, "ada")
    before = who(ring, old)
    await ring.remove("ada")
    new = await add(ring, "ada")
    assert ring.caller(old.encode()) is None
    assert who(ring, new).owner == before.owner
    assert not ring.knows(before)


async def test_what_another_daemon_changes_is_seen_at_the_next_refresh(ring: KeyRing, store: FlakyKeys) -> None:
    other = KeyRing(store, "another-root-key", clock=Moments())
    text = await add(other, "ada")
    assert ring.caller(text.encode()) is None
    await ring.refresh()
    ada = who(ring, text)
    await other.remove("ada")
    await ring.refresh()
    assert ring.caller(text.encode()) is None
    assert not ring.knows(ada)
    assert ring.caller(b"the-root-key") is ROOT
    assert ring.caller(b"another-root-key") is None


async def test_a_running_ring_follows_changes_by_itself(
    ring: KeyRing, store: FlakyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.callers.ring.REFRESH_SECONDS", 0.001)
    other = KeyRing(store, "the-root-key", clock=Moments())
    early = await add(other, "early")
    async with ring.running():
        assert who(ring, early).name == "early"  # from the first moment on
        text = await add(other, "ada")
        await until(lambda: ring.caller(text.encode()) is not None, "the new key opens")
        store.fail, store.failed = Unavailable("the database is away"), 0
        await until(lambda: store.failed >= 3, "the database was asked in vain")
        assert ring.caller(text.encode()) is not None  # as last known
        store.fail = None
        await other.remove("ada")
        await until(lambda: ring.caller(text.encode()) is None, "the removed key is locked out")


async def test_a_refresh_that_began_before_a_removal_does_not_bring_the_key_back(tmp_path: Path) -> None:
    """The database answers with what was there before; the removal must still have the last word."""
    began, go = asyncio.Event(), asyncio.Event()

    class Slow(FlakyKeys):
        async def all(self) -> list[KeyRow]:
            rows = await super().all()
            began.set()
            await go.wait()
            return rows

    async with flaky_keys(tmp_path, Slow) as slow:
        ring = KeyRing(slow, "the-root-key", clock=Moments())
        text = await add(ring, "ada")
        refresh = asyncio.create_task(ring.refresh())
        await began.wait()
        removal = asyncio.create_task(ring.remove("ada"))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(refresh, removal)
        assert ring.caller(text.encode()) is None


async def test_a_change_that_failed_changes_nothing(ring: KeyRing, store: FlakyKeys) -> None:
    text = await add(ring, "ada")
    store.fail = Unavailable("the database is away")
    for call in (add(ring, "bob"), ring.remove("ada"), ring.refresh()):
        with pytest.raises(Unavailable):
            await call
    assert who(ring, text).name == "ada"


async def test_last_use_is_written_in_batches_and_shown_at_once(ring: KeyRing, store: FlakyKeys) -> None:
    text = await add(ring, "ada")
    await add(ring, "bob")
    for _ in range(5):
        who(ring, text)
    used = {view.name: view.last_used_at for view in await ring.list()}
    assert used == {"ada": 1007.0, "bob": None}
    assert await store.last_use("ada") is None
    store.fail = Unavailable("the database is away")
    with pytest.raises(Unavailable):
        await ring.save_used()
    store.fail = None
    await ring.save_used()
    assert await store.last_use("ada") == 1007.0


async def test_the_end_writes_down_the_last_use(ring: KeyRing, store: FlakyKeys) -> None:
    async with ring.running():
        who(ring, await add(ring, "ada"))
        assert await store.last_use("ada") is None
    assert await store.last_use("ada") is not None
