"""Who pays for a call to a model: the thread whose sandbox it comes from, and the turn that runs there."""

from dataclasses import replace

import pytest

from holdfast.broker.accounts import Account, Books, Call, Limits, Spent, Tokens
from holdfast.records.usage import UsageSum
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import ThreadOptions
from holdfast.vocabulary.models import channel_tag
from holdfast.vocabulary.turn_events import Kind, TurnEvent
from support.threads.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

CALL = Call("demo", "demo-1", 200, Tokens(100, 10, 40), 0.25, 0.1, 0.5)
SWITCHED = TurnEvent(Kind.MODEL_SWITCHED, {"from": "demo/demo-1", "to": "demo/demo-2", "reason": "it said 503"})
COST = {"calls": 2, "input_tokens": 200, "output_tokens": 20, "cached_tokens": 80, "cost_usd": 0.5}


async def account(desk: Desk, tag: str | None = None) -> Account:
    session = (await desk.threads.get(REF)).row.session_id
    assert session is not None
    books: Books = desk.books  # the contract, as mypy sees it
    found = await books.account(session, tag)
    assert found is not None
    return found


async def test_calls_are_counted_for_the_turn_that_runs(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("ask go on? | yes", "m1")
        question = await desk.wait_for(Kind.QUESTION)
        payer = await account(desk)
        assert (payer.channel, payer.turn_id) == ("default", question.turn_id)
        await desk.books.record(payer, CALL)
        await desk.books.record(payer, CALL)
        await desk.books.tell(payer, [SWITCHED])
        assert await desk.books.spent(payer) == Spent(0.5, 0.5)
        await desk.threads.answer(REF, str(question.data["question_id"]), "yes")
        turn = await desk.ended("m1")
        events = await desk.events()
        thread = await desk.threads.get(REF)
        [listed], _ = await desk.threads.list(owner=REF.owner)
    assert events[-1].data["usage"] == COST
    assert turn.usage == thread.usage == listed.usage == UsageSum(2, 200, 20, 80, 0.5)
    told = next(event for event in events if event.kind == Kind.MODEL_SWITCHED)
    assert (told.turn_id, told.data) == (turn.row.id, SWITCHED.data)


async def test_between_turns_a_call_is_the_threads(street: Street) -> None:
    async with street.daemon(linger_seconds=30.0) as desk:
        turn = await desk.talk("say hello", "m1")
        payer = await account(desk)
        assert payer.turn_id is None
        await desk.books.record(payer, CALL)
        await desk.books.tell(replace(payer, turn_id=turn.row.id), [SWITCHED])  # begun in the turn, over after it
        last = (await desk.events())[-1]
        assert (last.kind, last.turn_id) == (Kind.MODEL_SWITCHED, None)
        assert (await desk.threads.turn(REF, turn.row.id)).usage == UsageSum()
        whole = (await desk.threads.get(REF)).usage
        assert whole is not None
        assert whole.calls == 1


async def test_a_tag_names_the_channel(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("ask go on? | yes", "m1", channel="side")
        question = await desk.wait_for(Kind.QUESTION)
        for tag in (None, channel_tag("side"), "unknown"):
            payer = await account(desk, tag)
            assert (payer.channel, payer.turn_id) == ("side", question.turn_id)
        payer = await account(desk, channel_tag("default"))
        assert (payer.channel, payer.turn_id) == ("default", None)
        await desk.threads.answer(REF, str(question.data["question_id"]), "yes")
        await desk.ended("m1")
        assert (await account(desk, channel_tag("side"))).channel == "side"


async def test_nobodys_sandbox_has_no_account(street: Street) -> None:
    async with street.daemon() as desk:
        assert await desk.books.account("ses_nobody", None) is None
        await desk.talk("say hello", "m1")
        payer = await account(desk)
        session = (await desk.threads.get(REF)).row.session_id
        await desk.threads.delete(REF)
        assert await desk.books.account(str(session), None) is None
        await desk.books.record(payer, CALL)  # it was under way
        await desk.books.tell(payer, [SWITCHED])
    assert await street.store.usage.total() == UsageSum(1, 100, 10, 40, 0.25)


async def test_what_is_told_between_turns_is_told_all_the_same(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        payer = await account(desk)
        before = len(await desk.events())
        desk.books.attend(lambda _thread: None)  # nobody works on it
        await desk.books.tell(payer, [SWITCHED])
        *_, told = await desk.events()
        assert (len(await desk.events()), told.kind, told.turn_id) == (before + 1, SWITCHED.kind, None)


async def test_the_daemons_limits_hold_whatever_the_thread_says(street: Street) -> None:
    defaults = AgentDefaults(
        model="demo/demo-1",
        model_preferences=["demo/demo-9"],
        allowed_models=["demo/*"],
        thread_limits=Limits(10, None, 5.0),
        owner_limits={"default": Limits(spend_usd=100.0)},
        owner_models={"default": ["demo/demo-*"], "somebody else": ["*"]},
    )
    options = ThreadOptions(
        model="demo/demo-2",
        model_preferences=["demo/demo-2", "other/big"],
        allowed_models=["demo/demo-2", "other/*"],
        limits=Limits(50, 1000, 1.0),
        retry_broken_streams=True,
    )
    async with street.daemon(agents=defaults) as desk:
        await desk.threads.resolve(REF)
        plain = await account(desk)
        await desk.threads.resolve(REF, options)
        chosen = await account(desk)
    assert (plain.allowed_models, plain.preferences) == (("demo/demo-*",), ("demo/demo-1", "demo/demo-9"))
    assert (plain.limits, plain.owner_limits) == (Limits(10, None, 5.0), Limits(spend_usd=100.0))
    assert (chosen.allowed_models, chosen.preferences) == (("demo/demo-2",), ("demo/demo-2", "other/big"))
    assert (chosen.limits, chosen.retry_broken_streams) == (Limits(10, 1000, 1.0), True)
