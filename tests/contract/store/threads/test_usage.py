"""Bills of calls to models: kept for ever, summed up every way that is asked for."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from contract.store.threads.talk import THREAD, a_turn, finalize, leased
from holdfast.records.usage import Run, UsageBy, UsageLine, UsageRow, UsageSum
from holdfast.store import Store
from holdfast.store.usage import CUT, day_of
from holdfast.vocabulary.turn_events import Kind

pytestmark = pytest.mark.anyio

FEB_28 = 1_772_323_199.0
"""The last second of February 2026, in UTC."""
MAR_1 = FEB_28 + 1
HOST_A, HOST_B = Run("host-a", "run_1"), Run("host-b", "run_1b")


def a_call(id: str, at: float = FEB_28, **changes: Any) -> UsageRow:
    fields: dict[str, Any] = {
        "thread_id": THREAD,
        "thread_key": "slack:T1:1",
        "owner": "root",
        "channel": "default",
        "turn_id": "trn_1",
        "provider": "demo",
        "model": "demo-1",
        "status": 200,
        "input_tokens": 100,
        "output_tokens": 10,
        "cached_tokens": 40,
        "cost_usd": 0.25,
        "first_byte_seconds": 0.5,
        "seconds": 2.0,
        "error": None,
    }
    return UsageRow(id=id, at=at, day=day_of(at), **(fields | changes))


async def add(store: Store, *calls: UsageRow) -> None:
    for call in calls:
        assert await store.usage.add(call)


async def test_a_call_counts_once(store: Store) -> None:
    assert await store.usage.add(a_call("use_1"))
    assert not await store.usage.add(a_call("use_1"))
    assert await store.usage.of_turn("trn_1") == UsageSum(1, 100, 10, 40, 0.25)
    assert await store.usage.of_turn("trn_2") == UsageSum()


async def test_a_call_that_ends_takes_the_place_of_what_was_known_of_it(store: Store) -> None:
    await store.usage.begin(a_call("use_1", cost_usd=0.1), run=HOST_A)
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (0.0, 0.0)
    assert await store.usage.add(a_call("use_1"))
    await store.usage.advance("use_1", output_tokens=9, input_tokens=9, cost_usd=9.0, seconds=1.0)  # too late
    assert await store.usage.settle(run=Run("host-a", "run_2"), unheard_for=-60.0) == []
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (0.25, 0.25)


async def test_calls_of_a_daemon_that_was_killed_are_billed_with_what_was_known_of_them(store: Store) -> None:
    again = Run("host-a", "run_2")
    await store.usage.begin(a_call("use_1", output_tokens=0, cost_usd=0.1), run=HOST_A)
    await store.usage.begin(a_call("use_2", cost_usd=1.0), run=HOST_B)
    await store.usage.begin(a_call("use_3", cost_usd=2.0), run=again)  # of the daemon that asks
    await store.usage.advance("use_1", output_tokens=7, input_tokens=100, cost_usd=0.5, seconds=0.5)
    [bill] = await store.usage.settle(run=again, unheard_for=3600.0)
    assert (bill.id, bill.output_tokens, bill.cost_usd, bill.error, bill.seconds) == ("use_1", 7, 0.5, CUT, 0.5)
    assert await store.usage.settle(run=again, unheard_for=3600.0) == []
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (0.5, 0.5)
    bills = await store.usage.settle(run=again, unheard_for=-60.0)  # a host that never came back
    assert [one.id for one in bills] == ["use_2"], "its own are its own, whatever the clock says"


async def test_a_daemon_that_was_thought_to_be_dead_puts_its_bill_right(store: Store) -> None:
    """The clock had jumped."""
    await store.usage.begin(a_call("use_1", cost_usd=1.0), run=HOST_B)
    assert await store.usage.settle(run=HOST_A, unheard_for=-60.0)
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (1.0, 1.0)
    for _ in range(2):
        assert not await store.usage.add(a_call("use_1", MAR_1, cost_usd=3.0))
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (3.0, 0.0)
    assert await store.usage.spent(THREAD, "root", now=MAR_1) == (3.0, 3.0)
    assert await store.usage.of_turn("trn_1") == UsageSum(1, 100, 10, 40, 3.0)


async def test_many_cut_calls_are_billed_while_others_end(store: Store) -> None:
    """Each transaction counts for threads and for an owner: in one order, or they wait for each other for ever."""
    for number in range(30):
        await store.usage.begin(a_call(f"use_{number}", thread_id=f"thr_{number % 3}"), run=HOST_B)
    ending = [store.usage.add(a_call(f"end_{number}", thread_id=f"thr_{number % 3}")) for number in range(30)]
    await asyncio.gather(*ending, store.usage.settle(run=HOST_A, unheard_for=-60.0))
    assert await store.usage.spent("thr_0", "root", now=FEB_28) == (5.0, 15.0)


async def test_a_call_without_a_price_or_an_answer_is_kept(store: Store) -> None:
    failed: dict[str, Any] = {
        "cost_usd": None,
        "first_byte_seconds": None,
        "status": 0,
        "error": "refused\0",
        "input_tokens": 0,
    }
    await add(store, a_call("use_1", turn_id=None, **failed), a_call("use_2"))
    assert await store.usage.of_threads([THREAD, "thr_0009"]) == {THREAD: UsageSum(2, 100, 20, 80, 0.25)}
    assert await store.usage.of_threads([]) == {}


async def test_what_was_spent_is_of_the_thread_and_of_the_owners_month(store: Store) -> None:
    await add(
        store,
        a_call("use_1"),
        a_call("use_2", MAR_1),
        a_call("use_3", MAR_1, thread_id="thr_0002", cost_usd=1.0),
        a_call("use_4", MAR_1, thread_id="thr_0003", owner="ann", cost_usd=8.0),
        a_call("use_5", MAR_1, cost_usd=None),
    )
    assert await store.usage.spent(THREAD, "root", now=MAR_1) == (0.5, 1.25)
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (0.5, 0.25)
    assert await store.usage.spent("thr_0009", "nobody", now=MAR_1) == (0.0, 0.0)


async def test_what_was_spent_is_not_summed_up_when_it_is_asked_for(store: Store) -> None:
    """It is asked for before each call, and bills are kept for ever."""
    await add(store, a_call("use_1"))
    assert not await store.usage.add(a_call("use_1"))
    forget = sa.text("DELETE FROM usage")
    await store.usage._database.write(lambda connection: connection.execute(forget))
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (0.25, 0.25)


async def test_calls_that_end_at_once_are_all_in_the_totals(store: Store) -> None:
    calls = [a_call(f"use_{number}", thread_id=f"thr_{number % 2}") for number in range(40)]
    assert all(await asyncio.gather(*(store.usage.add(call) for call in calls)))
    assert await store.usage.spent("thr_0", "root", now=FEB_28) == (5.0, 10.0)
    assert (await store.usage.total()).cost_usd == 10.0


async def test_reports(store: Store) -> None:
    await add(
        store,
        a_call("use_1"),
        a_call("use_2", MAR_1, model="demo-2", cost_usd=2.0),
        a_call("use_3", MAR_1, thread_id="thr_0002", thread_key="dm:U1"),
        a_call("use_4", MAR_1, thread_id="thr_0003", owner="ann", cost_usd=8.0),
    )

    async def lines(by: UsageBy, **which: str) -> list[tuple[str, str | None, int, float]]:
        found = await store.usage.report(by, limit=10, **which)
        return [(line.what, line.owner, line.sum.calls, line.sum.cost_usd) for line in found]

    assert await lines(UsageBy.THREAD) == [
        ("slack:T1:1", "ann", 1, 8.0),
        ("slack:T1:1", "root", 2, 2.25),
        ("dm:U1", "root", 1, 0.25),
    ]
    assert await lines(UsageBy.MODEL, owner="root") == [("demo/demo-2", None, 1, 2.0), ("demo/demo-1", None, 2, 0.5)]
    assert await lines(UsageBy.DAY) == [("2026-03-01", None, 3, 10.25), ("2026-02-28", None, 1, 0.25)]
    assert await lines(UsageBy.OWNER, since="2026-03-01") == [("ann", None, 1, 8.0), ("root", None, 2, 2.25)]
    assert await lines(UsageBy.DAY, thread_key="slack:T1:1", owner="root", until="2026-02-28") == [
        ("2026-02-28", None, 1, 0.25)
    ]
    assert await store.usage.report(UsageBy.DAY, limit=1) == [
        UsageLine("2026-03-01", None, UsageSum(3, 300, 30, 120, 10.25))
    ]
    assert await store.usage.total(owner="root") == UsageSum(3, 300, 30, 120, 2.5)
    assert await store.usage.total(owner="nobody") == UsageSum()


async def test_a_turns_last_event_says_what_it_cost(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease)
    await add(store, a_call("use_1"), a_call("use_2"), a_call("use_3", turn_id="trn_2"))
    await store.turns.end(lease, turn.id, finalize())
    last = (await store.thread_events.of_turn(turn.id, kinds=[Kind.FINALIZE]))[-1]
    assert last.data["usage"] == {
        "calls": 2,
        "input_tokens": 200,
        "output_tokens": 20,
        "cached_tokens": 80,
        "cost_usd": 0.5,
    }


async def test_a_turn_without_calls_says_nothing_of_cost(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease)
    await store.turns.end(lease, turn.id, finalize())
    assert "usage" not in (await store.thread_events.of_turn(turn.id, kinds=[Kind.FINALIZE]))[-1].data


async def test_bills_outlive_the_thread(store: Store) -> None:
    lease = await leased(store)
    await add(store, a_call("use_1"))
    await store.threads.delete(lease)
    await store.leases.release(lease, if_done=False)
    await store.threads.purge(older_than=-1)
    assert await store.threads.deleted(limit=10) == []
    assert [line.what for line in await store.usage.report(UsageBy.THREAD, limit=10)] == ["slack:T1:1"]
