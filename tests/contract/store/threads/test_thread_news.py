"""What the world is told of threads: in one log with sessions, in the transaction of what it tells of."""

import asyncio

import pytest

from contract.store.threads.talk import THREAD, a_lease, a_thread, a_turn, delta, finalize, leased
from holdfast.errors import StaleRow
from holdfast.records.events import EventRow
from holdfast.records.threads import Lease
from holdfast.store import Store, ThreadKind
from holdfast.store.threads.news import MOST_PER_HOUR
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

pytestmark = pytest.mark.anyio

QUESTION = TurnEvent(Kind.QUESTION, {"question_id": "q1", "text": "left or right?" + "!" * 5000, "options": []})
ALERT = TurnEvent(Kind.USAGE_ALERT, {"what": "budget", "message": "80 % are spent"})


async def told(store: Store, **which: str) -> list[EventRow]:
    return (await store.events.page(after=0, limit=1000, **which)).events


def _without_holes(events: list[EventRow]) -> None:
    assert [event.seq - events[0].seq for event in events] == list(range(len(events)))


async def test_a_threads_life(store: Store) -> None:
    lease = await leased(store)
    await store.events.record("created", "ses_1", data={}, now=1.0)
    turn = await a_turn(store, lease)
    asked = [delta("hm"), QUESTION]
    await store.turns.advance(lease, turn.id, after="", cursor="1", events=asked)
    await store.thread_events.leave(THREAD, [ALERT])
    error = {"code": "agent_down", "message": "it died"}
    await store.turns.end(lease, turn.id, finalize(StopReason.ERROR, error=error))
    await store.turns.end(lease, turn.id, finalize())  # it has ended
    await store.threads.note_error(lease, "unavailable: no host")
    await store.threads.delete(lease)
    await store.threads.delete(lease)
    events = await told(store)
    _without_holes(events)
    assert [event.kind for event in events] == [
        ThreadKind.CREATED,
        "created",
        ThreadKind.QUESTION,
        ThreadKind.USAGE_ALERT,
        ThreadKind.TURN_ENDED,
        ThreadKind.ERROR,
        ThreadKind.DELETED,
    ]
    mine = await told(store, thread_key="slack:T1:1")
    assert {(event.thread_id, event.thread_key, event.owner) for event in mine} == {(THREAD, "slack:T1:1", "root")}
    ended = mine[3].data
    assert (ended["turn_id"], ended["reason"], ended["error"]) == ("trn_1", "error", error)
    assert ended["message_ids"] == ["msg-trn_1"]
    assert mine[1].data["question_id"] == "q1" and len(str(mine[1].data["text"])) == 2000
    assert mine[2].data["message"] == "80 % are spent"
    assert mine[4].data["error"] == "unavailable: no host"


async def test_owners_see_their_own(store: Store) -> None:
    await a_thread(store)
    await a_thread(store, 2, owner="ann")
    assert [event.thread_id for event in await told(store, owner="ann")] == ["thr_0002"]


async def test_what_did_not_happen_is_not_told(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease)
    stale = Lease(lease.thread_id, "another", lease.generation)
    with pytest.raises(StaleRow):
        await store.turns.end(stale, turn.id, finalize())
    with pytest.raises(StaleRow):
        await store.turns.advance(lease, turn.id, after="elsewhere", cursor="1", events=[QUESTION])
    assert [event.kind for event in await told(store)] == [ThreadKind.CREATED]


async def test_a_sandbox_cannot_flood_the_log(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease)
    await store.turns.advance(lease, turn.id, after="", cursor="1", events=[QUESTION] * 200)
    await store.turns.advance(lease, turn.id, after="1", cursor="2", events=[QUESTION] * 10)
    await store.thread_events.leave(THREAD, [ALERT] * 100)
    kinds = [event.kind for event in await told(store)]
    assert (kinds.count(ThreadKind.QUESTION), kinds.count(ThreadKind.USAGE_ALERT)) == (MOST_PER_HOUR, MOST_PER_HOUR)


async def test_many_threads_at_once_have_one_numbering(store: Store) -> None:
    async def live(number: int) -> None:
        await a_thread(store, number)
        lease = await a_lease(store, number)
        turn = await a_turn(store, lease, f"trn_{number}")
        await store.turns.end(lease, turn.id, finalize())

    await asyncio.gather(*(live(number) for number in range(1, 21)))
    events = await told(store)
    assert len(events) == 40
    _without_holes(events)
