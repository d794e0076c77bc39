"""Two daemons on one database, many callers at once, and clocks that do not agree."""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.util import await_only

from contract.store.threads.talk import THREAD, a_lease, a_thread, a_turn, delta, finalize, kinds, leased, say
from holdfast.errors import Conflict, IdempotencyMismatch, StaleRow
from holdfast.records.threads import Lease, MessageStatus, NewMessage, Put, SleepState, ThreadRow
from holdfast.store import Store
from holdfast.store.threads.leases import Idle
from holdfast.vocabulary.turn_events import Kind
from support.waiting import until

pytestmark = pytest.mark.anyio

T = TypeVar("T")
AWAKE = Idle(sleep_states=[SleepState.AWAKE], idle_for=0)


async def _outcomes(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_fifty_want_a_new_thread_and_get_the_same(store: Store, other: Store) -> None:
    calls = [
        (store, other)[n % 2].threads.get_or_create(id=f"thr_{n}", owner="root", key="slack:T:1", agent="fake")
        for n in range(50)
    ]
    outcomes = await asyncio.gather(*calls)
    assert sum(new for _, new in outcomes) == 1
    assert len({row.id for row, _ in outcomes}) == 1


async def test_fifty_puts_of_one_id_make_one_message(store: Store, other: Store) -> None:
    await a_thread(store)
    message = NewMessage(id="m", text="once", channel="side")
    puts = await asyncio.gather(*((store, other)[n % 2].messages.put(THREAD, message) for n in range(50)))
    assert sum(put.new for put in puts) == 1
    assert len((await store.messages.page(THREAD, limit=100)).rows) == 1
    assert len(await store.threads.channels(THREAD)) == 1


async def test_two_contents_with_one_id_and_one_of_them_wins(store: Store, other: Store) -> None:
    await a_thread(store)
    calls = [(store, other)[n % 2].messages.put(THREAD, NewMessage(id="m", text=str(n % 2))) for n in range(20)]
    outcomes = await _outcomes(calls)
    assert sum(isinstance(outcome, Put) and outcome.new for outcome in outcomes) == 1
    assert sum(isinstance(outcome, IdempotencyMismatch) for outcome in outcomes) == 10


async def test_twenty_want_the_lease_and_one_gets_it(store: Store, other: Store) -> None:
    await a_thread(store)
    await a_lease(store, owner="dead", ttl=-1)
    calls = [(store, other)[n % 2].leases.take(THREAD, owner=f"daemon-{n}", ttl=60) for n in range(20)]
    outcomes = await _outcomes(calls)
    winners = [outcome for outcome in outcomes if isinstance(outcome, ThreadRow)]
    assert len(winners) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
    assert (await store.threads.get(THREAD)).lease == winners[0].lease


async def test_two_janitors_claim_each_idle_thread_once(store: Store, other: Store) -> None:
    for number in range(10):
        await a_thread(store, number)
        lease = await a_lease(store, number)
        await store.threads.set_session(lease, f"ses_{number}")
        await store.leases.release(lease)
    claims = await asyncio.gather(
        *(
            (store, other)[n % 2].leases.claim_idle(f"thr_{n // 2:04}", AWAKE, owner=f"janitor-{n % 2}", ttl=60)
            for n in range(20)
        )
    )
    assert sorted(row.id for row in claims if row is not None) == [f"thr_{n:04}" for n in range(10)]


async def test_numbers_have_no_holes_whoever_writes(store: Store, other: Store) -> None:
    """Holders change while they write; all that an old one still tries is refused as a whole."""
    await a_thread(store)
    written: list[str] = []

    async def work(daemon: Store, owner: str) -> None:
        for round in range(6):
            lease = await a_lease(daemon, owner=owner, ttl=-1)  # always free for the other one
            for step in range(4):
                text = f"{owner}.{round}.{step}"
                try:
                    await daemon.threads.note_error(lease, text)
                    title = delta(text)
                    await daemon.thread_events.record(lease, [title, title, title])
                except StaleRow:
                    break
                written.extend([text] * 3)

    await asyncio.gather(work(store, "a"), work(other, "b"), work(store, "c"), work(other, "d"))
    page = await store.thread_events.page(THREAD, after=0, limit=10_000)
    assert await kinds(store) == [Kind.TEXT_DELTA] * len(written)
    texts = [event.data["text"] for event in page.events]
    assert sorted(map(str, texts)) == sorted(written)
    assert all(len(set(texts[n : n + 3])) == 1 for n in range(0, len(texts), 3))  # a batch stays together
    times = [event.at for event in page.events]
    assert times == sorted(times)


async def test_a_reader_never_sees_a_later_number_before_an_earlier_one(store: Store, other: Store) -> None:
    lease = await leased(store)
    done = asyncio.Event()

    async def write(daemon: Store) -> None:
        for _ in range(25):
            await daemon.thread_events.record(lease, [delta("x"), delta("y")])

    async def read() -> list[int]:
        seen: list[int] = []
        while True:
            last = done.is_set()
            page = await other.thread_events.page(THREAD, after=seen[-1] if seen else 0, limit=7)
            seen += [event.seq for event in page.events]
            if last and not page.events:
                return seen

    reader = asyncio.create_task(read())
    await asyncio.gather(write(store), write(other), write(store))
    done.set()
    assert await reader == list(range(1, 151))


async def test_no_message_falls_between_a_release_and_a_put(store: Store, other: Store) -> None:
    """Who puts a message and sees a held lease may go: the holder cannot let go without seeing the message."""
    await a_thread(store)
    for n in range(30):
        lease = await a_lease(store, owner="holder")

        async def put(n: int = n) -> bool:
            put = await other.messages.put(THREAD, NewMessage(id=f"m{n}", text="x"))
            return put.thread.lease_owner is None

        calls: list[Awaitable[bool]] = [put(), store.leases.release(lease)]
        if n % 2:
            putter_is_to_work, let_go = await asyncio.gather(*calls)
        else:
            let_go, putter_is_to_work = await asyncio.gather(*reversed(calls))
        assert putter_is_to_work == let_go
        await store.messages.cancel_queued(THREAD)
        await store.leases.release(lease)


async def test_an_idle_thread_is_either_claimed_or_spoken_to_first(store: Store, other: Store) -> None:
    await a_thread(store)
    lease = await a_lease(store)
    await store.threads.set_session(lease, "ses_1")
    await store.leases.release(lease)
    for n in range(30):
        calls: list[Awaitable[object]] = [
            other.messages.put(THREAD, NewMessage(id=f"m{n}", text="x")),
            store.leases.claim_idle(THREAD, AWAKE, owner="janitor", ttl=60),
        ]
        both = await asyncio.gather(*(calls if n % 2 else reversed(calls)))
        put, claimed = both if n % 2 else reversed(both)
        assert isinstance(put, Put)
        assert (claimed is not None) == (put.thread.lease_owner == "janitor")
        await store.messages.cancel_queued(THREAD)
        if isinstance(claimed, ThreadRow):
            await store.leases.release(claimed.lease)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)  # a writer on SQLite begins to look when it is its turn
@pytest.mark.parametrize("call", ["release", "claim_idle"])
async def test_who_waited_for_a_put_sees_its_message(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The statement that waits for the row must not judge the queue by what it saw before the wait."""
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    if call == "claim_idle":
        await store.leases.release(lease)
    inside, go_on = asyncio.Event(), asyncio.Event()

    def hold_the_row(*_: object) -> None:
        inside.set()
        await_only(go_on.wait())

    monkeypatch.setattr("holdfast.store.threads.messages._attach", hold_the_row)
    put = asyncio.create_task(say(other, "m1"))
    await inside.wait()
    if call == "release":
        waiting: asyncio.Task[object] = asyncio.create_task(store.leases.release(lease))
    else:
        longer = Idle(sleep_states=[SleepState.AWAKE], idle_for=-60)  # also holds for the row that the put has touched
        waiting = asyncio.create_task(store.leases.claim_idle(THREAD, longer, owner="janitor", ttl=60))
    await _until_somebody_waits(store)
    go_on.set()
    await put
    assert not await waiting


async def _until_somebody_waits(store: Store) -> None:
    """Until a transaction waits for another one's end."""
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def waits() -> bool:
        return bool(await store._database.read(lambda connection: connection.scalar(query)))

    await until(waits, "a transaction waits for another")


async def test_one_message_is_begun_once_by_however_many(store: Store, other: Store) -> None:
    lease = await leased(store)
    await say(store, "m1")
    calls = [(store, other)[n % 2].turns.begin(lease, "default", f"trn_{n}") for n in range(10)]
    await _outcomes(calls)
    turns = await store.turns.page(THREAD, limit=100)
    assert len(turns) == 1
    assert await kinds(store) == [Kind.MESSAGE_CREATE]


async def test_a_batch_sent_by_two_is_told_once(store: Store, other: Store) -> None:
    """A daemon that was thought dead goes on beside its successor in mid-turn."""
    await a_thread(store)
    old = await a_lease(store, owner="old", ttl=-1)
    await a_turn(store, old)
    new = await a_lease(other, owner="new")

    async def follow(daemon: Store, lease: Lease) -> int:
        for n in range(20):
            after = str(n) if n else ""
            try:
                await daemon.turns.advance(lease, "trn_1", after=after, cursor=str(n + 1), events=[delta(f"{n} ")])
            except StaleRow:
                return n
        return 20

    assert list(await asyncio.gather(follow(store, old), follow(other, new))) == [0, 20]
    await other.turns.end(new, "trn_1", finalize())
    assert (await store.turns.get("trn_1")).answer == "".join(f"{n} " for n in range(20))


async def test_two_that_end_a_turn_end_it_once(store: Store, other: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await asyncio.gather(*((store, other)[n % 2].turns.end(lease, "trn_1", finalize()) for n in range(10)))
    assert await kinds(store) == [Kind.MESSAGE_CREATE, Kind.FINALIZE]


async def test_a_message_is_begun_or_taken_back_never_both(store: Store, other: Store) -> None:
    lease = await leased(store)
    for n in range(20):
        await say(store, f"m{n}")
        calls: list[Awaitable[object]] = [
            store.turns.begin(lease, "default", f"trn_{n}"),
            other.messages.cancel(THREAD, f"m{n}"),
        ]
        await _outcomes(calls if n % 2 else reversed(calls))
        message = await store.messages.get(THREAD, f"m{n}")
        running = await store.turns.unfinished(THREAD)
        assert (message.status, len(running)) in [(MessageStatus.IN_TURN, 1), (MessageStatus.CANCELED, 0)]
        if running:
            await store.turns.end(lease, f"trn_{n}", finalize())


@pytest.mark.parametrize("url", ["postgres"], indirect=True)  # on SQLite, daemons share the machine and its clock
@pytest.mark.parametrize("skew", [-86_400.0, 86_400.0])
async def test_a_daemon_whose_clock_is_wrong_steals_no_lease(
    store: Store, other: Store, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_thread(store)
    lease = await a_lease(store)
    await store.threads.set_session(lease, "ses_1")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    with pytest.raises(Conflict):
        await a_lease(other, owner="daemon-b")
    await say(other, "m1")
    assert await other.leases.abandoned(limit=10) == []
    assert await other.leases.claim_idle(THREAD, AWAKE, owner="janitor", ttl=60) is None
    await store.leases.release(lease, if_done=False)
    theirs = await a_lease(other, owner="daemon-b")
    monkeypatch.undo()
    with pytest.raises(Conflict):  # neither has it run out, nor will it never
        await a_lease(store)
    held = await store.threads.get(THREAD)
    assert abs((held.lease_expires_at or 0) - real() - 60) < 30
    await store.messages.cancel_queued(THREAD)
    assert await other.leases.release(theirs)
    idle = Idle(sleep_states=[SleepState.AWAKE], idle_for=3600)
    assert await other.leases.idle(idle, limit=10) == []
    await other.nodes.heartbeat("node-b")
    assert await store.nodes.dead(silent_for=3600) == []
