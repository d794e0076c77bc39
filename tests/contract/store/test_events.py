"""The log of events: what is written with a change, what is read again, in which order, and what is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import fields

import pytest
import sqlalchemy as sa

from contract.store.rows import NOW, a_row
from holdfast.errors import HoldfastError, StaleRow, TooManySessions
from holdfast.records.events import EventPage, EventRow
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.store import Store
from holdfast.store.tables import session_events as table
from support.waiting import linger

pytestmark = pytest.mark.anyio

WRITERS = 8
EACH = 25


@pytest.fixture
async def other(url: str, store: Store) -> AsyncIterator[Store]:
    """A second daemon on the database of ``store``."""
    opened = await Store.open(url)
    yield opened
    await opened.close()


async def everything(store: Store) -> EventPage:
    return await store.events.page(after=None, limit=10_000)


async def record(store: Store, *kinds: str, session_id: str = "ses_0001", at: float = NOW) -> None:
    for kind in kinds:
        await store.events.record(kind, session_id, data={"n": 1}, now=at)


async def change(store: Store, status: Status, *tell: str) -> SessionRow:
    return await store.sessions.change(
        "ses_0001", statuses=["active"], generation=None, now=NOW + 1, values={"status": status}, tell=tell
    )


def test_an_event_has_the_columns_of_the_table() -> None:
    assert [field.name for field in fields(EventRow)] == [column.name for column in table.columns]


async def test_an_empty_log(store: Store) -> None:
    assert await everything(store) == EventPage([], 0, 1, 0)
    assert await store.events.newest() == 0
    assert await store.events.prune(NOW) == 0


async def test_a_change_and_its_events_are_one(store: Store) -> None:
    await store.sessions.insert(a_row(metadata={"team": "blue"}), max_live=None, tell=["created", "active"])
    await store.sessions.change(
        "ses_0001",
        statuses=["active"],
        generation=0,
        now=NOW + 1,
        values={"status": Status.ERROR, "reason": Reason.CRASHED, "error": "bad \0 byte"},
        tell=["error"],
    )
    page = await everything(store)
    data = {"status": "active", "reason": None, "error": None, "image": "host", "metadata": {"team": "blue"}}
    crashed = {**data, "status": "error", "reason": "crashed", "error": "bad \ufffd byte"}
    assert page.events == [
        EventRow(seq=1, kind="created", session_id="ses_0001", at=NOW, data=data, owner="root"),
        EventRow(seq=2, kind="active", session_id="ses_0001", at=NOW, data=data, owner="root"),
        EventRow(seq=3, kind="error", session_id="ses_0001", at=NOW + 1, data=crashed, owner="root"),
    ]
    assert (page.next, page.oldest, page.newest) == (3, 1, 3)


async def test_no_change_no_event(store: Store) -> None:
    """Refused, repeated or failing changes add nothing, and take no number."""
    await store.sessions.insert(a_row(idempotency_key="k"), max_live=None, tell=["created"])
    await store.sessions.insert(a_row(2, idempotency_key="k"), max_live=None, tell=["created"])
    with pytest.raises(TooManySessions):
        await store.sessions.insert(a_row(3), max_live=1, tell=["created"])
    with pytest.raises(StaleRow):
        await store.sessions.change(
            "ses_0001",
            statuses=["paused"],
            generation=None,
            now=NOW,
            values={"status": Status.ACTIVE},
            tell=["resumed"],
        )
    unused = await store.sessions.claim_expired(
        "ses_0001", statuses=["active"], now=NOW, values={"status": Status.DESTROYING}, tell=["expired"]
    )
    assert unused is None
    with pytest.raises(HoldfastError):  # the row is right, but the event cannot be written: neither happens
        await change(store, Status.PAUSED, "paused", "broken \udcff")
    assert (await store.sessions.get("ses_0001")).status == "active"
    claimed = await store.sessions.claim_expired(
        "ses_0001", statuses=["active"], now=NOW + 600, values={"status": Status.DESTROYING}, tell=["expired"]
    )
    assert claimed is not None
    assert [(event.seq, event.kind) for event in (await everything(store)).events] == [(1, "created"), (2, "expired")]


async def test_changes_that_are_not_told_add_nothing(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    await change(store, Status.PAUSING)
    assert (await everything(store)).newest == 0


async def test_pages_and_filters(store: Store) -> None:
    await record(store, "created", "active", "destroyed", session_id="ses_0001")
    await record(store, "created", "error", session_id="ses_0002")
    await store.events.record("created", "ses_0003", data={}, now=NOW, owner="ada")

    async def numbers(after: int | None = None, limit: int = 10, **narrow: object) -> tuple[list[int], int]:
        page = await store.events.page(after=after, limit=limit, **narrow)  # type: ignore[arg-type]  # by name
        return [event.seq for event in page.events], page.next

    assert await numbers(limit=2) == ([1, 2], 2)
    assert await numbers(after=2, limit=2) == ([3, 4], 4)
    assert await numbers(after=4, limit=2) == ([5, 6], 6)
    assert await numbers(after=6) == ([], 6)
    assert await numbers(after=2**62) == ([], 2**62)
    assert await numbers(session_id="ses_0002") == ([4, 5], 6)
    assert await numbers(kinds=["created"]) == ([1, 4, 6], 6)
    assert await numbers(kinds=["created"], limit=2) == ([1, 4], 4)
    assert await numbers(kinds=["created", "error"], session_id="ses_0002", after=4) == ([5], 6)
    assert await numbers(owner="ada") == ([6], 6)
    assert await numbers(kinds=["oom"]) == ([], 6)
    assert await numbers(kinds=[]) == ([], 6)


async def test_pruning_forgets_from_the_oldest_on(store: Store) -> None:
    for at in (NOW, NOW + 1, NOW + 5, NOW + 3, NOW + 9):  # one clock is behind: what is after a kept one is kept
        await record(store, "created", at=at)
    assert await store.events.prune(NOW) == 0
    assert await store.events.prune(NOW + 4) == 2
    page = await store.events.page(after=1, limit=10)
    assert ([event.seq for event in page.events], page.oldest, page.newest) == ([3, 4, 5], 3, 5)
    assert (page.lost(0), page.lost(1), page.lost(2), page.lost(5)) == (True, True, False, False)
    assert await store.events.prune(NOW + 100) == 3
    assert await store.events.prune(NOW + 100) == 0
    page = await everything(store)
    assert (page.events, page.next, page.oldest, page.newest) == ([], 5, 6, 5)
    await record(store, "active", at=NOW + 200)
    assert [event.seq for event in (await everything(store)).events] == [6], "a number is never used again"


async def test_the_numbers_survive_the_store(url: str) -> None:
    for expected in (1, 2, 3):
        store = await Store.open(url)
        await record(store, "created")
        await store.events.prune(NOW + 1)
        assert await store.events.newest() == expected
        await store.close()


async def test_appending_is_announced(store: Store) -> None:
    heard: list[int] = []
    store.events.listeners.append(lambda: heard.append(1))
    await store.sessions.insert(a_row(), max_live=None, tell=["created"])
    await change(store, Status.PAUSED, "paused")
    await record(store, "oom")
    assert len(heard) == 3
    await store.sessions.touch([("ses_0001", NOW + 1, NOW + 2, "/")])
    await store.sessions.insert(a_row(2), max_live=None)
    assert len(heard) == 3


async def test_readers_see_every_event_in_order_while_many_write(store: Store, other: Store) -> None:
    """Eight writers on two connections' worth of daemons; two readers poll all the while and go on from what they saw.

    With numbers from a plain sequence a reader passes 7 before 6 is committed, and never sees 6.
    """
    total = WRITERS * EACH
    for n in range(WRITERS):
        await store.sessions.insert(a_row(n), max_live=None)

    async def write(n: int) -> None:
        host = (store, other)[n % 2]
        for turn in range(EACH):
            status = Status.PAUSED if turn % 2 == 0 else Status.ACTIVE
            await host.sessions.change(
                f"ses_{n:04}",
                statuses=["active", "paused"],
                generation=None,
                now=NOW + turn,
                values={"status": status, "error": str(turn)},
                tell=[status],
            )

    async def read(host: Store) -> list[EventRow]:
        seen: list[EventRow] = []
        cursor = 0
        while len(seen) < total:
            page = await host.events.page(after=cursor, limit=7)
            assert not page.lost(cursor)
            seen += page.events
            cursor = page.next
            await asyncio.sleep(0)
        return seen

    async with asyncio.timeout(60):
        *_, mine, theirs = await asyncio.gather(*(write(n) for n in range(WRITERS)), read(store), read(other))
    assert mine is not None
    assert [event.seq for event in mine] == list(range(1, total + 1))
    assert mine == theirs
    for n in range(WRITERS):
        told = [event.data["error"] for event in mine if event.session_id == f"ses_{n:04}"]
        assert told == [str(turn) for turn in range(EACH)], "the events of one session are in the order of its changes"


async def test_an_uncommitted_event_holds_back_the_later_ones(store: Store, other: Store) -> None:
    """The order of numbers is the order of commits, also when the first writer is slow to commit."""
    await store.sessions.insert(a_row(), max_live=None)
    release, holding = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(connection: sa.Connection) -> None:
        from holdfast.store.events import append

        append(connection, "first", "ses_0001", at=NOW, data={}, owner=None)
        loop.call_soon_threadsafe(holding.set)
        if connection.dialect.name == "sqlite":
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        else:
            from sqlalchemy.util import await_only

            await_only(release.wait())

    first = asyncio.create_task(store._database.write(slow))
    await holding.wait()
    second = asyncio.create_task(record(other, "second"))
    for _ in range(20):
        assert (await everything(other)).newest == 0
        await linger(0.005)
    assert not second.done()
    release.set()
    await asyncio.gather(first, second)
    assert [(event.seq, event.kind) for event in (await everything(store)).events] == [(1, "first"), (2, "second")]


async def test_a_cancelled_change_is_told_or_did_not_happen(store: Store) -> None:
    for n in range(1, 61):
        task = asyncio.create_task(store.sessions.insert(a_row(n), max_live=None, tell=["created"]))
        await asyncio.sleep(n * 0.0001)  # the moment of the fault
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    rows = await store.sessions.page(statuses=None, limit=1000, after=None)
    page = await everything(store)
    assert sorted(event.session_id for event in page.events) == sorted(row.id for row in rows)
    assert [event.seq for event in page.events] == list(range(1, len(rows) + 1))


async def test_pruning_while_others_write_loses_nothing_unseen(store: Store, other: Store) -> None:
    async def write() -> None:
        for n in range(100):
            await store.events.record("created", f"ses_{n:04}", data={}, now=NOW + n)

    async def prune() -> None:
        for n in range(0, 100, 10):
            await other.events.prune(NOW + n)
            await asyncio.sleep(0)

    async def read() -> tuple[int, int]:
        seen = lost = cursor = 0
        while cursor < 100:
            page = await other.events.page(after=cursor, limit=5)
            if page.lost(cursor):
                lost += page.oldest - 1 - cursor
            seen += len(page.events)
            cursor = page.next
            await asyncio.sleep(0)
        return seen, lost

    async with asyncio.timeout(60):
        _, _, (seen, lost) = await asyncio.gather(write(), prune(), read())
    assert seen + lost == 100
