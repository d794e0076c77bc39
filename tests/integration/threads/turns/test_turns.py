"""From a message to its answer, on one daemon where nothing fails."""

import asyncio

import pytest

from holdfast.errors import IdempotencyMismatch
from holdfast.vocabulary.turn_events import Kind
from support.threads.threads import REF, Street, text_of

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered(street: Street) -> None:
    async with street.daemon() as desk:
        turn = await desk.talk("say hello there", "m1")
        events = await desk.events()
        thread = await desk.threads.get(REF)
    assert (turn.row.stop_reason, turn.row.answer, turn.row.attempts, turn.row.accepted) == (
        "end_turn",
        "hello there\n",
        1,
        True,
    )
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert text_of(events) == "hello there\n"
    assert [event.kind for event in events].count(Kind.FINALIZE) == 1
    assert events[-1].kind == Kind.FINALIZE
    assert thread.row.session_id in street.sandboxes()
    assert thread.row.sleep_state == "awake"
    assert len(street.agents.ran) == 1


async def test_the_same_message_is_one_turn(street: Street) -> None:
    async with street.daemon() as desk:
        await asyncio.gather(*(desk.say("say once", "m1") for _ in range(20)))
        await desk.ended("m1")
        await desk.say("say once", "m1")
        with pytest.raises(IdempotencyMismatch):
            await desk.say("say twice", "m1")
        await desk.talk("say more", "m2")
    assert len(street.agents.ran) == 2
    assert len(street.sandboxes()) == 1


async def test_one_thread_has_one_sandbox_and_one_memory(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say first", "m1")
        turn = await desk.talk("recall first", "m2")
    assert turn.row.answer == "yes\n"
    assert len(street.sandboxes()) == 1
