"""Who is let in to models, also when many come at once."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.broker.accounts import Limits, Spent
from holdfast.broker.models.limits.gate import Gate, Refusal
from holdfast.broker.models.limits.holds import Hold
from holdfast.broker.models.prices import Price
from support.servers.model_door import ACCOUNT, MemoryBooks

pytestmark = pytest.mark.anyio

PRICE = Price(1.0, 1.0)
THREAD = replace(ACCOUNT, limits=Limits(requests_per_minute=3, spend_usd=1.0))
OWNER = replace(ACCOUNT, owner_limits=Limits(requests_per_minute=3, spend_usd=1.0))


class SlowBooks(MemoryBooks):
    """Everybody looks at the same time."""

    async def spent(self, account: object, /) -> Spent:
        await asyncio.sleep(0)
        return Spent(self.spent_before, self.spent_before)


@pytest.mark.parametrize("account", [THREAD, OWNER], ids=["thread", "owner"])
async def test_a_budget_holds_when_many_come_at_once(account: object) -> None:
    assert isinstance(account, type(THREAD))
    gate, books = Gate(), SlowBooks()
    asked = [gate.admit(account, "one/m1", PRICE, books, most_usd=0.4) for _ in range(50)]
    answers = await asyncio.gather(*asked)
    holds = [one for one in answers if isinstance(one, Hold)]
    refusals = [one for one in answers if isinstance(one, Refusal)]
    assert len(holds) == 3, "the third may overshoot: until it is over, nobody knows"
    assert {(one.status, one.code) for one in refusals} == {(429, "budget_under_way")}
    gate.release(holds[0])
    assert isinstance(await gate.admit(account, "one/m1", PRICE, books, most_usd=0.4), Hold)
    books.spent_before = 1.0
    spent = await gate.admit(account, "one/m1", PRICE, books)
    assert isinstance(spent, Refusal) and spent.code == "budget_spent"


async def test_a_call_that_ends_during_the_look_is_still_counted() -> None:
    gate = Gate()
    hold = gate.hold(THREAD, 1.0)

    class Ending(MemoryBooks):
        async def spent(self, account: object, /) -> Spent:
            gate.release(hold)  # its bill was written just after this sum was made
            return Spent(0.5, 0.5)

    assert isinstance(await gate.admit(THREAD, "one/m1", PRICE, Ending()), Refusal)
    assert isinstance(await gate.admit(THREAD, "one/m1", PRICE, MemoryBooks()), Hold)


async def test_what_has_no_budget_holds_nothing() -> None:
    gate = Gate()
    hold = gate.hold(ACCOUNT, 5.0)
    assert hold.keys == ()
