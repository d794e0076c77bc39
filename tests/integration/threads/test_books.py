"""Who pays for a call to a model: the thread whose sandbox it comes from, and the turn that runs there."""

from dataclasses import replace

import pytest

from holdfast.broker.accounts import Account, Books, Call, SpendingLimits, Spent, Tokens
from holdfast.records.usage import UsageSum
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.models import channel_tag
from holdfast.vocabulary.turn_events import Kind, TurnEvent
from support.threads.threads import REF, FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio

CALL = Call("demo", "demo-1", 200, Tokens(100, 10, 40), 0.25, 0.1, 0.5)
SWITCHED = TurnEvent(Kind.MODEL_SWITCHED, {"from": "demo/demo-1", "to": "demo/demo-2", "reason": "it said 503"})
COST = {"calls": 2, "input_tokens": 200, "output_tokens": 20, "cached_tokens": 80, "cost_usd": 0.5}


async def account(daemon: ThreadDaemon, tag: str | None = None) -> Account:
    session = (await daemon.threads.get(REF)).row.session_id
    assert session is not None
    books: Books = daemon.books  # the contract, as mypy sees it
    found = await books.account(session, tag)
    assert found is not None
    return found


async def test_calls_are_counted_for_the_turn_that_runs(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("ask go on? | yes", "m1")
        question = await daemon.wait_for(Kind.QUESTION)
        payer = await account(daemon)
        assert (payer.channel, payer.turn_id) == ("default", question.turn_id)
        await daemon.books.record(payer, CALL)
        await daemon.books.record(payer, CALL)
        await daemon.books.tell(payer, [SWITCHED])
        assert await daemon.books.spent(payer) == Spent(0.5, 0.5)
        await daemon.threads.answer(REF, str(question.data["question_id"]), "yes")
        turn = await daemon.ended("m1")
        events = await daemon.events()
        thread = await daemon.threads.get(REF)
        [listed], _ = await daemon.threads.list(owner=REF.owner)
    assert events[-1].data["usage"] == COST
    assert turn.usage == thread.usage == listed.usage == UsageSum(2, 200, 20, 80, 0.5)
    told = next(event for event in events if event.kind == Kind.MODEL_SWITCHED)
    assert (told.turn_id, told.data) == (turn.row.id, SWITCHED.data)


async def test_between_turns_a_call_is_the_threads(site: FakeSite) -> None:
    async with site.daemon(linger_seconds=30.0) as daemon:
        turn = await daemon.talk("say hello", "m1")
        payer = await account(daemon)
        assert payer.turn_id is None
        await daemon.books.record(payer, CALL)
        await daemon.books.tell(replace(payer, turn_id=turn.row.id), [SWITCHED])  # begun in the turn, over after it
        last = (await daemon.events())[-1]
        assert (last.kind, last.turn_id) == (Kind.MODEL_SWITCHED, None)
        assert (await daemon.threads.turn(REF, turn.row.id)).usage == UsageSum()
        whole = (await daemon.threads.get(REF)).usage
        assert whole is not None
        assert whole.calls == 1


async def test_a_tag_names_the_channel(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("ask go on? | yes", "m1", channel="side")
        question = await daemon.wait_for(Kind.QUESTION)
        for tag in (None, channel_tag("side"), "unknown"):
            payer = await account(daemon, tag)
            assert (payer.channel, payer.turn_id) == ("side", question.turn_id)
        payer = await account(daemon, channel_tag("default"))
        assert (payer.channel, payer.turn_id) == ("default", None)
        await daemon.threads.answer(REF, str(question.data["question_id"]), "yes")
        await daemon.ended("m1")
        assert (await account(daemon, channel_tag("side"))).channel == "side"


async def test_nobodys_sandbox_has_no_account(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        assert await daemon.books.account("ses_nobody", None) is None
        await daemon.talk("say hello", "m1")
        payer = await account(daemon)
        session = (await daemon.threads.get(REF)).row.session_id
        await daemon.threads.delete(REF)
        assert await daemon.books.account(str(session), None) is None
        await daemon.books.record(payer, CALL)  # it was under way
        await daemon.books.tell(payer, [SWITCHED])
    assert await site.store.usage.total() == UsageSum(1, 100, 10, 40, 0.25)


async def test_what_is_told_between_turns_is_told_all_the_same(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        payer = await account(daemon)
        before = len(await daemon.events())
        daemon.books.leases.clear()  # nobody works on it
        await daemon.books.tell(payer, [SWITCHED])
        *_, told = await daemon.events()
        assert (len(await daemon.events()), told.kind, told.turn_id) == (before + 1, SWITCHED.kind, None)


async def test_the_daemons_limits_hold_whatever_the_thread_says(site: FakeSite) -> None:
    defaults = AgentDefaults(
        model="demo/demo-1",
        model_preferences=["demo/demo-9"],
        allowed_models=["demo/*"],
        thread_limits=SpendingLimits(10, None, 5.0),
        owner_limits={"default": SpendingLimits(spend_usd=100.0)},
        owner_models={"default": ["demo/demo-*"], "somebody else": ["*"]},
    )
    options = ThreadOptions(
        model="demo/demo-2",
        model_preferences=["demo/demo-2", "other/big"],
        allowed_models=["demo/demo-2", "other/*"],
        limits=SpendingLimits(50, 1000, 1.0),
        retry_broken_streams=True,
    )
    async with site.daemon(agents=defaults) as daemon:
        await daemon.threads.resolve(REF)
        plain = await account(daemon)
        await daemon.threads.resolve(REF, options)
        chosen = await account(daemon)
    assert (plain.allowed_models, plain.preferences) == (("demo/demo-*",), ("demo/demo-1", "demo/demo-9"))
    assert (plain.limits, plain.owner_limits) == (SpendingLimits(10, None, 5.0), SpendingLimits(spend_usd=100.0))
    assert (chosen.allowed_models, chosen.preferences) == (("demo/demo-2",), ("demo/demo-2", "other/big"))
    assert (chosen.limits, chosen.retry_broken_streams) == (SpendingLimits(10, 1000, 1.0), True)
