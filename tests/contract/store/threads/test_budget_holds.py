"""Budgets of daemons that share a database: what one holds, the others do not have."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contract.store.threads.talk import THREAD
from contract.store.threads.test_usage import FEB_28, a_call
from holdfast.records.usage import Run
from holdfast.store import Store
from holdfast.store.budget_holds import Asked, Purse

pytestmark = pytest.mark.anyio

A, B = Run("host-a", "run_a"), Run("host-b", "run_b")
MOST = 0.25


@pytest.fixture
async def other(store: Store, url: str) -> AsyncIterator[Store]:
    """Another daemon's."""
    opened = await Store.open(url)
    yield opened
    await opened.close()


def asked(id: str, usd: float = MOST, *, thread: float | None = 1.0, owner: float | None = None) -> Asked:
    return Asked(id=id, thread_id=THREAD, owner="root", usd=usd, now=FEB_28, thread_limit=thread, owner_limit=owner)


async def take(store: Store, ask: Asked, run: Run, ttl: float = 60.0) -> bool:
    purses = await store.budget_holds.take(ask, run=run, ttl=ttl)
    return all(purse.has_room(ask.usd) for purse in purses)


async def purse(store: Store) -> Purse:
    thread, _owner = await store.budget_holds.take(asked("look", 0.0), run=B, ttl=1.0)
    return thread


@pytest.mark.parametrize("whose", ["thread", "owner"])
async def test_daemons_that_race_never_hold_more_than_there_is(store: Store, other: Store, whose: str) -> None:
    thread, owner = (1.0, None) if whose == "thread" else (None, 1.0)

    async def call(number: int) -> bool:
        """The call costs what it may cost."""
        mine, run = ((store, A), (other, B))[number % 2]
        if not await take(mine, asked(f"hld_{number}", thread=thread, owner=owner), run):
            return False
        bill = a_call(f"use_{number}", cost_usd=MOST)
        return await mine.usage.add(bill, hold_id=f"hld_{number}")

    made = await asyncio.gather(*(call(number) for number in range(60)))
    assert sum(made) == 4
    assert await store.usage.spent(THREAD, "root", now=FEB_28) == (1.0, 1.0)
    assert (await purse(store)).held == 0


async def test_a_call_that_may_cost_more_than_is_left_is_made_alone(store: Store, other: Store) -> None:
    assert await take(store, asked("hld_1", 5.0), A)
    assert not await take(other, asked("hld_2", 0.01), B)
    assert await store.usage.add(a_call("use_1", cost_usd=0.9), hold_id="hld_1")
    assert await take(other, asked("hld_3", 5.0), B), "something is left, and nobody else has it"
    assert await other.usage.add(a_call("use_2", cost_usd=0.1), hold_id="hld_3")
    assert not await take(other, asked("hld_4", 0.01), B)
    assert (await purse(store)).is_spent


async def test_money_moves_from_held_to_spent_at_once(store: Store, other: Store) -> None:
    """Whoever looks meanwhile sees it in one of the two, and never in both."""
    assert await take(store, asked("hld_0", 0.5), A)
    seen: list[Purse] = []

    async def look() -> None:
        while len(seen) < 200 or (seen[-1].held and len(seen) < 5000):
            seen.append(await purse(other))

    looking = asyncio.create_task(look())
    await store.usage.add(a_call("use_0", cost_usd=0.5), hold_id="hld_0")
    await looking
    assert {one.spent + one.held for one in seen} == {0.5}
    assert seen[-1].spent == 0.5


async def test_what_a_dead_daemon_held_is_given_back(store: Store, other: Store) -> None:
    assert await take(store, asked("hld_1", 0.6), A)
    await other.budget_holds.renew(run=B, ttl=60.0)
    assert (await purse(other)).held == 0.6, "it may be alive"
    again = Run("host-a", "run_a2")
    await store.budget_holds.renew(run=again, ttl=60.0)
    assert (await purse(other)).held == 0, "the node has a new daemon"
    assert await take(store, asked("hld_2", 0.6), again, ttl=-1.0)  # it ran out
    assert (await purse(other)).held == 0
    assert await take(other, asked("hld_3", 0.6), B)
    await store.budget_holds.renew(run=again, ttl=60.0)
    assert (await purse(other)).held == pytest.approx(1.2), "it was alive after all, and its call is under way"


async def test_the_clock_takes_nothing_from_who_is_alive(store: Store) -> None:
    assert await take(store, asked("hld_1", 0.6), B, ttl=-3600.0)
    assert (await purse(store)).held == 0.6
    await store.budget_holds.renew(run=B, ttl=-3600.0)
    assert (await purse(store)).held == 0.6
    await store.budget_holds.release(["hld_1", "hld_1", "unknown"])
    assert (await purse(store)).held == 0
