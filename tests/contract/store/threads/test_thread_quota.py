"""How much of a thread is kept: the oldest events and files go, and what was said stays."""

from dataclasses import replace

import pytest

from contract.store.threads.talk import THREAD, a_turn, delta, finalize, leased
from holdfast.records.threads import FileKind, Lease, ThreadFileRow
from holdfast.store import Store

pytestmark = pytest.mark.anyio


async def whole_turn(store: Store, lease: Lease, message: str, words: int) -> None:
    turn = await a_turn(store, lease, message, message)
    events = [delta(f"{message} {number} " + "x" * 1000) for number in range(words)]
    await store.turns.advance(lease, turn.id, after="", cursor="1", events=events)
    await store.turns.end(lease, turn.id, finalize())


async def test_what_is_too_much_is_forgotten_from_the_beginning(store: Store) -> None:
    lease = await leased(store)
    for message in ("m1", "m2", "m3"):
        await whole_turn(store, lease, message, 20)
    row = await store.threads.get(THREAD)
    assert 60_000 < row.events_bytes < 90_000
    assert await store.thread_events.prune(THREAD, most_bytes=100_000, most_events=1000) == 0
    assert await store.thread_events.too_many(most_bytes=100_000, most_events=1000) == []
    assert await store.thread_events.too_many(most_bytes=40_000, most_events=1000) == [THREAD]
    assert await store.thread_events.too_many(most_bytes=100_000, most_events=10) == [THREAD]
    forgotten = await store.thread_events.prune(THREAD, most_bytes=40_000, most_events=1000)
    page = await store.thread_events.page(THREAD, after=0, limit=1000)
    after = await store.threads.get(THREAD)
    assert page.pruned == after.pruned_seq == forgotten > 0
    assert [event.seq for event in page.events] == list(range(forgotten + 1, row.last_seq + 1))
    assert 30_000 < after.events_bytes <= 36_000
    lines = await store.turns.transcript(THREAD, limit=100)
    assert [line.text for line in lines if line.role == "user"] == ["m1", "m2", "m3"]
    assert "m1 19 " in next(line.text for line in lines if line.role == "agent")
    await whole_turn(store, lease, "m4", 1)
    assert (await store.thread_events.page(THREAD, after=row.last_seq, limit=10)).events[0].seq == row.last_seq + 1
    assert await store.thread_events.prune(THREAD, most_bytes=100_000, most_events=5) > 0
    left = await store.thread_events.page(THREAD, after=0, limit=1000)
    assert len(left.events) <= 5
    await store.thread_events.prune(THREAD, most_bytes=0, most_events=0)
    assert (await store.threads.get(THREAD)).events_bytes == 0, "what is counted is what is there"


async def test_a_turn_that_runs_keeps_its_events(store: Store) -> None:
    lease = await leased(store)
    await whole_turn(store, lease, "m1", 3)
    turn = await a_turn(store, lease, "m2")
    await store.turns.advance(lease, turn.id, after="", cursor="1", events=[delta("x" * 5000)])
    await store.thread_events.prune(THREAD, most_bytes=10, most_events=1)
    page = await store.thread_events.page(THREAD, after=0, limit=100)
    assert page.events[0].seq == turn.first_seq
    await store.turns.end(lease, turn.id, finalize())
    assert "x" * 5000 in str((await store.turns.get(turn.id)).answer)


async def test_events_that_were_given_back_do_not_count(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease, "m1")
    for _ in range(2):  # the second time, it has happened before
        await store.turns.advance(lease, turn.id, after="", cursor="1", events=[delta("x" * 500)])
    before = (await store.threads.get(THREAD)).events_bytes
    await store.turns.end(lease, turn.id, finalize())
    assert 500 < before < 2000
    await store.thread_events.prune(THREAD, most_bytes=0, most_events=0)
    assert (await store.threads.get(THREAD)).events_bytes == 0


async def test_a_very_long_answer_is_kept_in_part(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease, "m1")
    events = [delta("a" * 800_000), delta("b" * 800_000)]
    await store.turns.advance(lease, turn.id, after="", cursor="1", events=events)
    ended = await store.turns.end(lease, turn.id, finalize())
    assert ended.answer is not None and len(ended.answer) < 1_000_100
    assert ended.answer.startswith("a" * 1000) and ended.answer.endswith("b" * 1000)
    assert "600000 characters are left out" in ended.answer


async def test_files_go_when_there_are_too_many_replaced_ones_first(store: Store) -> None:
    lease = await leased(store)
    ended = await a_turn(store, lease, "m1")
    await store.turns.end(lease, ended.id, finalize())
    running = await a_turn(store, lease, "m2")
    some = ThreadFileRow(
        id="", thread_id=THREAD, kind=FileKind.ARTIFACT, name="plot.png", size=100, sha256="", path="", turn_id=ended.id
    )
    for row in (
        replace(some, id="fil_0", kind=FileKind.UPLOAD, name="data.csv"),
        replace(some, id="fil_1"),
        replace(some, id="fil_2"),
        replace(some, id="fil_3", name="other.png"),
        replace(some, id="fil_4", turn_id=running.id),
        replace(some, id="fil_5", kind=FileKind.UPLOAD, name="new.csv", turn_id=None),
    ):
        await store.thread_files.add(row)

    async def gone(**most: int) -> list[str]:
        return [row.id for row in await store.thread_files.prune(THREAD, **most)]

    assert await store.thread_files.room(THREAD) == (600, 6)
    assert await gone(most_bytes=600, most_files=6) == []
    assert await gone(most_bytes=500, most_files=6) == ["fil_1"]
    assert await gone(most_bytes=500, most_files=4) == ["fil_2"]
    assert await gone(most_bytes=300, most_files=9) == ["fil_0"]
    assert await gone(most_bytes=0, most_files=0) == ["fil_3"], "what a turn works on stays"
