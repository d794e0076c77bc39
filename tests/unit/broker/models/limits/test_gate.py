"""Who is let in to models, also when many come at once."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.broker.accounts import Account, Hold, SpendingLimits, Spent
from holdfast.broker.models.limits.gate import Gate, Refusal
from holdfast.broker.models.prices import Price
from support.servers.model_door import ACCOUNT, MemoryBooks

pytestmark = pytest.mark.anyio

PRICE = Price(1.0, 1.0)
THREAD = replace(ACCOUNT, limits=SpendingLimits(requests_per_minute=3, spend_usd=1.0))
OWNER = replace(ACCOUNT, owner_limits=SpendingLimits(requests_per_minute=3, spend_usd=1.0))


class SlowBooks(MemoryBooks):
    """Everybody looks at the same time."""

    async def spent(self, _account: Account, /) -> Spent:
        await asyncio.sleep(0)
        return Spent(self.spent_before, self.spent_before)


async def admit(account: Account, books: MemoryBooks, hold: Hold) -> Refusal | None:
    return await Gate().admit(account, "one/m1", PRICE, books, hold)


@pytest.mark.parametrize("account", [THREAD, OWNER], ids=["thread", "owner"])
async def test_a_budget_holds_when_many_come_at_once(account: Account) -> None:
    books = SlowBooks()
    holds = [Hold(f"hld_{number}", 0.4) for number in range(50)]
    answers = await asyncio.gather(*(admit(account, books, hold) for hold in holds))
    refusals = [one for one in answers if one is not None]
    assert len(refusals) == 48 and len(books.held) == 2, "the third could overshoot"
    assert {(one.status, one.code) for one in refusals} == {(429, "budget_under_way")}
    assert sum(hold.is_open for hold in holds) == 2
    await books.release(next(hold for hold in holds if hold.is_open))
    assert await admit(account, books, Hold("hld_again", 0.4)) is None
    books.spent_before = 1.0
    spent = await admit(account, books, Hold("hld_late", 0.0))
    assert spent is not None and spent.code == "budget_spent"


async def test_what_has_no_budget_holds_nothing() -> None:
    books, hold = MemoryBooks(), Hold("hld_1", 5.0)
    assert await admit(ACCOUNT, books, hold) is None
    assert not books.held and not hold.is_open


async def test_whoever_is_cancelled_while_money_is_held_knows_that_it_may_be() -> None:
    class Hanging(MemoryBooks):
        async def spent(self, _account: Account, /) -> Spent:
            await asyncio.Event().wait()
            raise AssertionError

    hold = Hold("hld_1", 0.4)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await admit(THREAD, Hanging(), hold)
    assert hold.is_open
