"""Leases on threads: one holder at a time, no write by an old one, takeover from the dead, claims on the idle."""

from collections.abc import Awaitable, Callable

import pytest

from contract.store.threads.talk import THREAD, a_lease, a_thread, a_turn, delta, finalize, leased, say
from holdfast.errors import Conflict, StaleRow
from holdfast.records.threads import Lease, SleepState
from holdfast.store import Store
from holdfast.store.threads.leases import Idle
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio

OVER = -1.0
"""A lease for so long has run out when it is taken: no test waits for a clock."""
AWAKE = Idle(sleep_states=[SleepState.AWAKE], idle_for=0)
TITLE = TurnEvent(Kind.TITLE, {"title": "t"})


async def test_a_held_lease_is_refused_by_name(store: Store) -> None:
    await leased(store)
    with pytest.raises(Conflict, match=r"thr_0001 is leased by daemon-a until 20\d\d-"):
        await a_lease(store, owner="daemon-b")


async def test_a_lease_that_ran_out_is_taken_over(store: Store) -> None:
    await a_thread(store)
    old = await a_lease(store, ttl=OVER)
    new = await a_lease(store, owner="daemon-b")
    assert (old.generation, new.generation) == (1, 2)
    with pytest.raises(StaleRow, match=r"lease of daemon-a .* leased by daemon-b, generation 2"):
        await store.leases.renew(old, ttl=60)
    assert (await store.leases.renew(new, ttl=60)).lease == new


async def test_one_that_nobody_took_can_be_renewed(store: Store) -> None:
    await a_thread(store)
    lease = await a_lease(store, ttl=OVER)
    await store.leases.renew(lease, ttl=60)
    with pytest.raises(Conflict):
        await a_lease(store, owner="daemon-b")


async def test_the_same_owner_takes_it_again_and_its_earlier_life_is_refused(store: Store) -> None:
    old = await leased(store)
    new = await a_lease(store)
    assert new.generation == old.generation + 1
    with pytest.raises(StaleRow):
        await store.threads.change(old, {"agent": "x"})
    await store.threads.change(new, {"agent": "x"})


Write = Callable[[Store, Lease], Awaitable[object]]
EVERY_WRITE: dict[str, Write] = {
    "renew": lambda store, lease: store.leases.renew(lease, ttl=60),
    "set_session": lambda store, lease: store.threads.set_session(lease, "ses_1", events=[TITLE]),
    "change": lambda store, lease: store.threads.change(lease, {"sleep_state": SleepState.PAUSED}, events=[TITLE]),
    "change_channel": lambda store, lease: store.threads.change_channel(lease, "c", {"title": "x"}, events=[TITLE]),
    "note_error": lambda store, lease: store.threads.note_error(lease, "no", events=[TITLE]),
    "clear_error": lambda store, lease: store.threads.clear_error(lease),
    "record": lambda store, lease: store.thread_events.record(lease, [TITLE]),
    "request done": lambda store, lease: store.thread_requests.finish(lease, "r1", {"ok": True}),
    "begin": lambda store, lease: store.turns.begin(lease, "other", "trn_2"),
    "steer": lambda store, lease: store.turns.steer(lease, "trn_1", "queued"),
    "note": lambda store, lease: store.turns.note(lease, "trn_1", state="running", events=[TITLE]),
    "advance": lambda store, lease: store.turns.advance(lease, "trn_1", after="", cursor="1", events=[delta("x")]),
    "end": lambda store, lease: store.turns.end(lease, "trn_1", finalize(), events=[TITLE]),
    "revert": lambda store, lease: store.turns.revert(lease, "trn_0", events=[TITLE]),
    "delete": lambda store, lease: store.threads.delete(lease),
}


async def test_every_write_of_an_old_holder_is_refused_and_changes_nothing(store: Store) -> None:
    old = await leased(store)
    await a_turn(store, old, "trn_0", channel="past")
    await store.turns.end(old, "trn_0", finalize())
    await a_turn(store, old, "trn_1")
    await say(store, "queued")
    await say(store, "queued elsewhere", channel="other")
    await store.thread_requests.put(THREAD, id="r1", kind="abort", data={})
    await store.leases.release(old, if_done=False)
    new = await a_lease(store, owner="daemon-b")
    before = await _all_of_it(store)
    for name, write in EVERY_WRITE.items():
        with pytest.raises(StaleRow):
            await write(store, old)
        assert await _all_of_it(store) == before, name
    for write in EVERY_WRITE.values():  # it was the lease, and nothing else
        await write(store, new)


async def _all_of_it(store: Store) -> object:
    return (
        await store.threads.get(THREAD),
        await store.threads.channels(THREAD),
        (await store.messages.page(THREAD, limit=100)).rows,
        await store.turns.page(THREAD, limit=100),
        await store.thread_events.page(THREAD, after=0, limit=100),
        await store.thread_requests.open(THREAD),
    )


async def test_there_is_no_lease_to_let_go_of_while_there_is_work(store: Store) -> None:
    lease = await leased(store)
    await say(store, "m1")
    assert not await store.leases.release(lease)  # a queued message
    await store.turns.begin(lease, "default", "trn_1")
    assert not await store.leases.release(lease)  # a turn
    await store.turns.end(lease, "trn_1", finalize())
    await store.thread_requests.put(THREAD, id="r1", kind="revert", data={})
    assert not await store.leases.release(lease)  # a request
    await store.thread_requests.finish(lease, "r1", {})
    assert (await store.threads.get(THREAD)).lease_owner == "daemon-a"
    assert await store.leases.release(lease)
    assert (await store.threads.get(THREAD)).lease_owner is None
    assert await store.leases.release(lease)  # lost is as good


async def test_work_that_nobody_does_is_found(store: Store) -> None:
    for number in range(1, 7):
        await a_thread(store, number)
    await say(store, "m", thread="thr_0001")
    await say(store, "m", thread="thr_0002")
    dead = await a_lease(store, 2, ttl=OVER)
    await store.turns.begin(dead, "default", "trn_2")  # its daemon died in mid-turn
    await store.thread_requests.put("thr_0003", id="r", kind="revert", data={})
    await say(store, "m", thread="thr_0004")
    await a_lease(store, 4)  # somebody is at it
    await a_lease(store, 5, ttl=OVER)  # nothing to do
    found = await store.leases.abandoned(limit=10)
    assert {row.id for row in found} == {"thr_0001", "thr_0002", "thr_0003"}
    assert len(await store.leases.abandoned(limit=2)) == 2


async def test_an_orderly_end_frees_all_leases_at_once(store: Store) -> None:
    for number in (1, 2, 3):
        await a_thread(store, number)
        await say(store, "m", thread=f"thr_{number:04}")
    await a_lease(store, 1)
    await a_lease(store, 2)
    await a_lease(store, 3, owner="daemon-b")
    assert await store.leases.release_all("daemon-a") == ["thr_0001", "thr_0002"]
    assert {row.id for row in await store.leases.abandoned(limit=10)} == {"thr_0001", "thr_0002"}


async def _asleep_soon(store: Store, number: int, key: str | None = None) -> None:
    await a_thread(store, number, key=key)
    lease = await a_lease(store, number)
    await store.threads.set_session(lease, f"ses_{number}")
    await store.leases.release(lease)


async def test_the_idle_are_found_and_claimed_once(store: Store) -> None:
    await _asleep_soon(store, 1)
    await _asleep_soon(store, 2)
    await a_thread(store, 3)  # no sandbox: nothing to put to sleep
    assert [row.id for row in await store.leases.idle(AWAKE, limit=10)] == ["thr_0001", "thr_0002"]
    claimed = await store.leases.claim_idle("thr_0001", AWAKE, owner="janitor", ttl=60)
    assert claimed is not None
    assert (claimed.lease_owner, claimed.generation) == ("janitor", 2)
    assert await store.leases.claim_idle("thr_0001", AWAKE, owner="other", ttl=60) is None
    assert await store.leases.claim_idle("thr_0001", AWAKE, owner="janitor", ttl=60) is None
    await store.threads.change(claimed.lease, {"sleep_state": SleepState.PAUSED})
    await store.leases.release(claimed.lease)
    assert [row.id for row in await store.leases.idle(AWAKE, limit=10)] == ["thr_0002"]
    assert await store.leases.claim_idle("thr_0001", AWAKE, owner="janitor", ttl=60) is None


async def test_who_is_used_is_not_idle(store: Store) -> None:
    hour = Idle(sleep_states=[SleepState.AWAKE], idle_for=3600)
    await _asleep_soon(store, 1)
    assert await store.leases.idle(hour, limit=10) == []
    assert await store.leases.claim_idle(THREAD, hour, owner="janitor", ttl=60) is None


@pytest.mark.parametrize("work", ["message", "turn", "request"])
async def test_who_has_work_is_not_idle_however_long_ago(store: Store, work: str) -> None:
    await _asleep_soon(store, 1)
    if work == "request":
        await store.thread_requests.put(THREAD, id="r1", kind="abort", data={})
    else:
        await say(store, "m1")
    if work == "turn":
        await store.turns.begin(await a_lease(store, ttl=OVER), "default", "trn_1")
    assert await store.leases.idle(AWAKE, limit=10) == []
    assert await store.leases.claim_idle(THREAD, AWAKE, owner="janitor", ttl=60) is None
