"""The log of a thread: read in pages, and who is woken when there is more."""

import asyncio
from contextlib import suppress

import anyio
import pytest

from contract.store.threads.talk import THREAD, a_lease, a_thread, a_turn, delta, finalize, kinds, leased, say
from holdfast.errors import StaleRow
from holdfast.store import Store
from holdfast.store.pages import PAGE_BYTES
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio

TITLE = TurnEvent(Kind.TITLE, {"title": "t"})


async def test_pages_follow_each_other_without_a_hole(store: Store) -> None:
    lease = await leased(store)
    assert await store.thread_events.newest(THREAD) == 0
    for number in range(7):
        assert await store.thread_events.record(lease, [TITLE], channel="ab"[number % 2]) == number + 1
    seen: list[int] = []
    after = 0
    while (page := await store.thread_events.page(THREAD, after=after, limit=3)).events:
        seen += [event.seq for event in page.events]
        after = page.next
    assert seen == list(range(1, 8))
    assert (page.next, page.newest) == (7, 7)
    assert await store.thread_events.newest(THREAD) == 7


async def test_a_page_of_big_events_ends_early_and_is_never_empty(store: Store) -> None:
    lease = await leased(store)
    small, big, huge = (TurnEvent(Kind.TITLE, {"title": "t" * size}) for size in (10, 1_000_000, PAGE_BYTES + 1))
    told = [small, big, big, big, big, big, small, huge, huge, small]
    for event in told:
        await store.thread_events.record(lease, [event])
    sizes: list[int] = []
    seen: list[object] = []
    after = 0
    while after < (page := await store.thread_events.page(THREAD, after=after, limit=200)).newest:
        sizes.append(len(page.events))
        seen += [event.data for event in page.events]
        after = page.next
    assert seen == [event.data for event in told]
    assert sizes == [5, 3, 1, 1]
    assert (page.events, page.next, page.full) == ([], 10, False)


async def test_each_thread_counts_for_itself(store: Store) -> None:
    one = await leased(store)
    await a_thread(store, 2)
    two = await a_lease(store, 2)
    await store.thread_events.record(one, [TITLE, TITLE])
    await store.thread_events.record(two, [TITLE])
    assert (await kinds(store), await kinds(store, "thr_0002")) == (["title", "title"], ["title"])


async def test_the_events_of_a_turn_and_their_kinds(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await a_turn(store, lease, "trn_side", channel="side")
    asked = TurnEvent(Kind.QUESTION, {"question_id": "q1", "text": "sure?"})
    await store.turns.advance(lease, "trn_1", after="", cursor="1", events=[delta("x"), asked])
    await store.turns.end(lease, "trn_side", finalize())
    assert [event.kind for event in await store.thread_events.of_turn("trn_1")] == [
        Kind.MESSAGE_CREATE,
        Kind.TEXT_DELTA,
        Kind.QUESTION,
    ]
    only = await store.thread_events.of_turn("trn_1", kinds=[Kind.QUESTION])
    assert [event.data["question_id"] for event in only] == ["q1"]


async def test_halves_of_characters_do_not_reach_readers(store: Store) -> None:
    lease = await leased(store)
    given = {"title": "cut \ud83d", "more": ["\ude00 \U0001f600 \0 é", "\\ud83d", {"\ud83d\ud83d": 1.5}]}
    await store.thread_events.record(lease, [TurnEvent(Kind.TITLE, given)])
    (event,) = (await store.thread_events.page(THREAD, after=0, limit=1)).events
    assert event.data == {
        "title": "cut \ufffd",
        "more": ["\ufffd \U0001f600 \0 é", "\\ud83d", {"\ufffd\ufffd": 1.5}],
    }


async def test_who_listens_is_woken_at_once_by_this_process(store: Store) -> None:
    lease = await leased(store)
    await a_thread(store, 2)
    woken: list[str] = []
    with store.watch.listening(THREAD, lambda: woken.append("first")):
        await store.thread_events.record(lease, [TITLE])
        with store.watch.listening(THREAD, lambda: woken.append("second")):
            await say(store, "m1")
        await store.thread_requests.put(THREAD, id="r1", kind="abort", data={})
        await say(store, "elsewhere", thread="thr_0002")
    await say(store, "m2")
    assert woken == ["first", "first", "second", "first"]


async def test_a_write_that_fails_wakes_too(store: Store) -> None:
    """The answer to a commit may be lost, and then it has happened."""
    lease = await leased(store)
    await store.leases.release(lease)
    woken: list[int] = []
    with store.watch.listening(THREAD, lambda: woken.append(1)), suppress(StaleRow):
        await store.thread_events.record(lease, [TITLE])
    assert woken == [1]


async def test_another_process_is_noticed_by_polling(store: Store, other: Store) -> None:
    lease = await leased(other)
    woken: list[int] = []
    with store.watch.listening(THREAD, lambda: woken.append(1)):
        await store.watch.poll()  # the first look finds what was there
        woken.clear()
        await store.watch.poll()
        assert woken == []
        await other.thread_events.record(lease, [TITLE])
        await store.watch.poll()
        assert woken == [1]
        await say(other, "m1")
        await store.watch.poll()
        assert woken == [1, 1]
        await other.thread_requests.put(THREAD, id="r1", kind="abort", data={})
        await store.watch.poll()
        await other.thread_requests.finish(lease, "r1", {})
        await store.watch.poll()
        await other.threads.delete(lease)
        await store.watch.poll()
        assert woken == [1] * 5
        await store.watch.poll()
        assert woken == [1] * 5


async def test_the_watch_runs_by_itself_and_outlives_a_database_that_is_away(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await leased(other)
    changed = asyncio.Event()
    with store.watch.listening(THREAD, changed.set):
        real, failures = store.watch.marks, [1, 2]

        async def broken(ids: tuple[str, ...]) -> dict[str, tuple[int, int]]:
            if failures:
                failures.pop()
                raise StaleRow("away")
            return await real(ids)

        monkeypatch.setattr(store.watch, "marks", broken)
        watching = asyncio.create_task(store.watch.run(every=0.01))
        with anyio.fail_after(20):
            await changed.wait()
            changed.clear()
            await other.thread_events.record(lease, [TITLE])
            await changed.wait()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_ten_thousand_deltas(store: Store) -> None:
    """The transcript does not depend on them once the turn has ended."""
    lease = await leased(store)
    await a_turn(store, lease)
    cursor = ""
    for batch in range(10):
        events = [delta(f"{batch * 1000 + number} ") for number in range(1000)]
        await store.turns.advance(lease, "trn_1", after=cursor, cursor=str(batch), events=events)
        cursor = str(batch)
    await store.turns.end(lease, "trn_1", finalize())
    assert len(await kinds(store)) == 10_002
    told = await store.turns.transcript(THREAD)
    assert told[-1].text == "".join(f"{number} " for number in range(10_000))
