"""From a message to its answer, on one daemon where nothing fails."""

import asyncio

import pytest

from holdfast.errors import IdempotencyMismatch
from holdfast.vocabulary.turn_events import Kind
from support.threads.threads import REF, FakeSite, text_of

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        turn = await daemon.talk("say hello there", "m1")
        events = await daemon.events()
        thread = await daemon.threads.get(REF)
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
    assert thread.row.session_id in site.sandboxes()
    assert thread.row.sleep_state == "awake"
    assert len(site.agents.ran) == 1


async def test_the_same_message_is_one_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await asyncio.gather(*(daemon.say("say once", "m1") for _ in range(20)))
        await daemon.ended("m1")
        await daemon.say("say once", "m1")
        with pytest.raises(IdempotencyMismatch):
            await daemon.say("say twice", "m1")
        await daemon.talk("say more", "m2")
    assert len(site.agents.ran) == 2
    assert len(site.sandboxes()) == 1


async def test_one_thread_has_one_sandbox_and_one_memory(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        turn = await daemon.talk("recall first", "m2")
    assert turn.row.answer == "yes\n"
    assert len(site.sandboxes()) == 1
