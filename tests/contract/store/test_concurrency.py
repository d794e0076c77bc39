"""Many callers at once, in two stores on one database, as two daemons would be; and callers that are cancelled."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from typing import TypeVar

import anyio
import pytest
import sqlalchemy as sa

from contract.store.rows import NODE, NOW, a_row
from holdfast.errors import Conflict, TooManySessions
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.store import Store
from holdfast.store.database.engine import parse_url, postgres_engine
from holdfast.store.tables import LIVE
from support.waiting import linger, until

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@pytest.fixture
async def other(url: str, store: Store) -> AsyncIterator[Store]:
    """A second daemon on the database of ``store``."""
    opened = await Store.open(url)
    yield opened
    await opened.close()


async def _outcomes(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_fifty_inserts_at_once_stop_exactly_at_the_limit(store: Store, other: Store) -> None:
    calls = [(store, other)[n % 2].sessions.insert(a_row(n), max_live=20) for n in range(50)]
    outcomes = await _outcomes(calls)
    assert sum(isinstance(outcome, tuple) for outcome in outcomes) == 20
    assert sum(isinstance(outcome, TooManySessions) for outcome in outcomes) == 30
    assert len(await store.sessions.by_status(LIVE, node=NODE)) == 20


async def test_one_key_inserted_twenty_times_at_once_makes_one_row(store: Store, other: Store) -> None:
    rows = [a_row(n, idempotency_key="k", idempotency_hash="h") for n in range(20)]
    calls = [(store, other)[n % 2].sessions.insert(row, max_live=None) for n, row in enumerate(rows)]
    outcomes = await asyncio.gather(*calls)
    assert sum(new for _, new in outcomes) == 1
    assert len({row.id for row, _ in outcomes}) == 1


async def test_twenty_want_the_lease_and_one_gets_it(store: Store, other: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    calls = [
        (store, other)[n % 2].sessions.acquire_lease("ses_0001", owner=f"daemon-{n}", now=NOW, ttl=30)
        for n in range(20)
    ]
    outcomes = await _outcomes(calls)
    winners = [outcome for outcome in outcomes if isinstance(outcome, SessionRow)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert (len(winners), len(losers)) == (1, 19)
    row = await store.sessions.get("ses_0001")
    assert (row.generation, row.lease_owner) == (1, winners[0].lease_owner)
    assert all(f"leased by {row.lease_owner} until" in str(loser) for loser in losers)


async def test_twenty_changes_from_one_status_and_one_happens(store: Store, other: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    calls = [
        (store, other)[n % 2].sessions.change(
            "ses_0001", statuses=["active"], generation=0, now=NOW, values={"status": Status.PAUSING, "error": f"{n}"}
        )
        for n in range(20)
    ]
    winners = [outcome for outcome in await _outcomes(calls) if isinstance(outcome, SessionRow)]
    assert len(winners) == 1
    assert (await store.sessions.get("ses_0001")).error == winners[0].error


async def test_a_session_is_either_used_or_reaped_never_both(store: Store, other: Store) -> None:
    doomed: SessionChange = {"status": Status.DESTROYING, "reason": Reason.EXPIRED}
    used = reaped = 0
    for n in range(40):
        await store.sessions.insert(a_row(n, expires_at=NOW), max_live=None)
        id = f"ses_{n:04}"
        touch = store.sessions.touch([(id, NOW + 1, NOW + 600, "/used")])
        claim = other.sessions.claim_expired(id, statuses=["active"], now=NOW, values=doomed)
        first: list[Coroutine[None, None, object]] = [touch, claim]
        await asyncio.gather(*(first if n % 2 else reversed(first)))
        row = await store.sessions.get(id)
        if row.status == "active":
            used += 1
            assert (row.expires_at, row.cwd) == (NOW + 600, "/used")
        else:
            reaped += 1
            assert (row.status, row.expires_at, row.cwd) == ("destroying", NOW, "/home/user")
    assert used + reaped == 40


async def test_two_daemons_touch_the_same_rows_in_opposite_order(store: Store, other: Store) -> None:
    for n in range(100):
        await store.sessions.insert(a_row(n), max_live=None)
    batch = [(f"ses_{n:04}", NOW + 1, NOW + 601, "/x") for n in range(100)]
    calls = [(store, other)[n % 2].sessions.touch(batch[:: 1 if n % 2 else -1]) for n in range(20)]
    assert await _outcomes(calls) == [None] * 20


async def test_a_cancelled_call_leaves_nothing_behind(url: str, store: Store) -> None:
    """Cancelled at every kind of moment, by asyncio and by anyio, a call is done or undone, and holds no lock."""
    await store.sessions.insert(a_row(status="paused"), max_live=None)
    dice = random.Random(1)
    tasks = asyncio.all_tasks()
    for n in range(1, 121):
        call = store.sessions.insert(a_row(n + 1), max_live=None)
        if n % 2:
            task = asyncio.create_task(call)
            await asyncio.sleep(dice.random() * 0.004)  # the moment of the fault
            task.cancel()
            await asyncio.wait([task])
        else:
            with anyio.move_on_after(dice.random() * 0.004):
                await call
    # Another daemon can write at once: no transaction is open. All connections are back in the pool.
    with anyio.fail_after(30):
        other = await Store.open(url)
        await other.sessions.touch([(f"ses_{n:04}", NOW + 1, NOW + 2, "/") for n in range(130)])
        await other.sessions.insert(a_row(1000), max_live=None)
        await other.close()
    assert _checked_out(store) == 0
    assert await _idle_in_transaction(store) == 0
    assert asyncio.all_tasks() == tasks


async def test_a_cancelled_call_has_settled_when_it_returns(store: Store) -> None:
    for n in range(60):
        task = asyncio.create_task(store.sessions.insert(a_row(n), max_live=None))
        await asyncio.sleep(n * 0.0001)  # the moment of the fault
        task.cancel()
        await asyncio.wait([task])
        before = await store.sessions.by_status(LIVE, node=NODE)
        await linger(0.002)
        assert await store.sessions.by_status(LIVE, node=NODE) == before


async def test_a_caller_cancelled_behind_a_lock_goes_within_the_grace(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.database.database._GRACE", 0.2)
    await store.sessions.insert(a_row(), max_live=None)
    other = await Store.open(url)
    release, holding = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def sit_on_the_row(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE sessions SET cwd = '/held'"))
        loop.call_soon_threadsafe(holding.set)
        if connection.dialect.name == "sqlite":
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        else:
            from sqlalchemy.util import await_only

            await_only(release.wait())

    holder = asyncio.create_task(other._database.write(sit_on_the_row))
    await holding.wait()
    with anyio.fail_after(30), anyio.move_on_after(0.1) as scope:
        await store.sessions.change("ses_0001", statuses=["active"], generation=None, now=NOW, values={"cwd": "/x"})
    assert scope.cancelled_caught
    release.set()
    await holder
    await other.close()
    with anyio.fail_after(30):  # and the store works again
        await store.sessions.touch([("ses_0001", NOW + 1, NOW + 601, "/y")])
    assert (await store.sessions.get("ses_0001")).cwd == "/y"
    await until(lambda: _checked_out(store) == 0, "what was torn down has let go of its connection")


async def test_who_stands_still_in_the_middle_of_a_statement_holds_nobody_up(url: str, store: Store) -> None:
    """A daemon that is stopped when its statement was prepared, and not executed: the server would wait for ever."""
    if url.startswith("sqlite"):
        pytest.skip("SQLite has no server that waits for its clients")
    store._database._standing_still._seconds = 0.2  # type: ignore[attr-defined]  # only this kind of database has it
    await store.sessions.insert(a_row(), max_live=None)
    stopped = postgres_engine(parse_url(url), timeout=60.0)
    try:
        connection = await stopped.connect()
        await connection.execute(sa.text("UPDATE sessions SET cwd = '/held'"))
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        await raw.driver_connection.prepare("SELECT 1 FROM sessions")
        await store.sessions.touch([("ses_0001", NOW + 1, NOW + 601, "/y")])
        assert (await store.sessions.get("ses_0001")).cwd == "/y"
        with pytest.raises(sa.exc.DBAPIError):  # when it goes on, it has done nothing
            await connection.commit()
        await connection.invalidate()
    finally:
        await stopped.dispose()


def _checked_out(store: Store) -> int:
    engine = store._database._engine  # type: ignore[attr-defined]  # both kinds of database have one
    pool: sa.QueuePool = engine.pool
    return pool.checkedout()


async def _idle_in_transaction(store: Store) -> int:
    def count(connection: sa.Connection) -> int:
        if connection.dialect.name == "sqlite":
            return 0
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        return int(connection.scalar(sa.text(query)) or 0)

    return await store._database.read(count)
