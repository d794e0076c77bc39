"""Cursors of webhooks: where a new one begins, who may move it, and when it is forgotten."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from contract.store.rows import NOW
from holdfast.errors import StaleRow
from holdfast.store import Store

pytestmark = pytest.mark.anyio

HOOK = "hook-1"


@pytest.fixture
async def other(url: str, store: Store) -> AsyncIterator[Store]:
    opened = await Store.open(url)
    yield opened
    await opened.close()


async def record(store: Store, count: int = 1) -> None:
    for _ in range(count):
        await store.events.record("created", "ses_1", data={}, now=NOW)


async def test_a_new_one_begins_with_the_next_event_and_an_old_one_stays(store: Store) -> None:
    await record(store, 3)
    assert (await store.webhooks.ensure(HOOK, now=NOW)).seq == 3
    await record(store, 2)
    again = await store.webhooks.ensure(HOOK, now=NOW + 1)
    assert (again.seq, again.updated_at) == (3, NOW + 1)
    cursor, newest = await store.webhooks.look(HOOK)
    assert (cursor, newest) == (again, 5)


async def test_many_begin_the_same_one(store: Store, other: Store) -> None:
    await record(store)
    made = await asyncio.gather(*((store, other)[n % 2].webhooks.ensure(HOOK, now=NOW) for n in range(10)))
    assert {cursor.seq for cursor in made} == {1}


async def test_one_of_many_gets_it(store: Store, other: Store) -> None:
    await store.webhooks.ensure(HOOK, now=NOW)
    claims = [(store, other)[n % 2].webhooks.claim(HOOK, owner=f"d{n}", now=NOW, ttl=30) for n in range(20)]
    won = [cursor for cursor in await asyncio.gather(*claims) if cursor is not None]
    assert len(won) == 1
    owner = won[0].lease_owner
    assert owner is not None
    assert await store.webhooks.claim(HOOK, owner=owner, now=NOW + 1, ttl=30) is not None, "its own it may have again"
    assert await store.webhooks.claim(HOOK, owner="late", now=NOW + 30, ttl=30) is None
    assert await store.webhooks.claim(HOOK, owner="late", now=NOW + 31, ttl=30) is not None, "the lease has run out"
    with pytest.raises(StaleRow, match="another daemon"):
        await store.webhooks.advance(HOOK, owner=owner, seq=9, now=NOW + 32, ttl=30)
    with pytest.raises(StaleRow):
        await store.webhooks.postpone(HOOK, owner=owner, seq=9, failures=1, next_try_at=NOW, now=NOW)
    await store.webhooks.release(HOOK, owner=owner)  # not its own any more: nothing happens
    assert (await store.webhooks.look(HOOK))[0].lease_owner == "late"
    assert (await store.webhooks.look(HOOK))[0].seq == 0


async def test_failing_and_getting_better(store: Store) -> None:
    await store.webhooks.ensure(HOOK, now=NOW)
    assert await store.webhooks.claim(HOOK, owner="a", now=NOW, ttl=30)
    await store.webhooks.postpone(HOOK, owner="a", seq=4, failures=1, next_try_at=NOW + 8, now=NOW)
    cursor, _ = await store.webhooks.look(HOOK)
    assert (cursor.seq, cursor.failures, cursor.next_try_at, cursor.lease_owner) == (4, 1, NOW + 8, None)
    assert await store.webhooks.claim(HOOK, owner="b", now=NOW + 7, ttl=30) is None, "not before its time"
    claimed = await store.webhooks.claim(HOOK, owner="b", now=NOW + 8, ttl=30)
    assert claimed is not None and claimed.failures == 1
    await store.webhooks.advance(HOOK, owner="b", seq=5, now=NOW + 9, ttl=30)
    cursor, _ = await store.webhooks.look(HOOK)
    assert (cursor.seq, cursor.failures, cursor.lease_owner, cursor.lease_expires_at) == (5, 0, "b", NOW + 39)
    await store.webhooks.release(HOOK, owner="b")
    assert (await store.webhooks.look(HOOK))[0].lease_owner is None


async def test_an_unknown_one_is_an_error(store: Store) -> None:
    with pytest.raises(StaleRow, match="nobody"):
        await store.webhooks.look("nobody")
    assert await store.webhooks.claim("nobody", owner="a", now=NOW, ttl=30) is None


async def test_times_of_a_clock_that_was_set_back_hold_nobody_up(store: Store) -> None:
    await store.webhooks.ensure(HOOK, now=NOW)
    ahead = NOW + 8 * 86400
    assert await store.webhooks.claim(HOOK, owner="dead", now=ahead, ttl=30)
    assert await store.webhooks.claim(HOOK, owner="b", now=NOW, ttl=30), "nobody leases it for eight days"
    await store.webhooks.postpone(HOOK, owner="b", seq=4, failures=1, next_try_at=ahead + 600, now=ahead)
    assert await store.webhooks.claim(HOOK, owner="b", now=NOW, ttl=30), "nobody waits for eight days"


async def test_cursors_go_by_the_databases_clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await store.webhooks.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 600)
    ahead = await store.webhooks.now() - before
    assert ahead < 60 if store.webhooks._database._place.startswith("Postgres") else ahead >= 600
