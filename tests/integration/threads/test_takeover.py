"""Daemons come and go in the middle of turns; each delta is there once, and each turn ends once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.records.threads import ThreadEventRow
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Street, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def go(street: Street, path: str = "/workspace/go") -> None:
    """Let the agent that waits for this file go on."""
    for sandbox in street.house.world.sandboxes.values():
        assert sandbox.runner is not None
        sandbox.runner.files[path] = b""


async def test_a_turn_goes_on_with_the_next_daemon(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("say one two\nwait-for /workspace/go\nsay three four", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
    await go(street)  # the agent works on while there is no daemon
    async with street.daemon() as desk:
        turn = await desk.ended("m1")
        events = await desk.events()
    assert turn.row.stop_reason == "end_turn"
    assert text_of(events).split() == ["one", "two", "three", "four"]
    assert [event.kind for event in events].count(Kind.FINALIZE) == 1
    assert len(street.agents.ran) == 1


async def test_a_message_stored_as_the_daemon_stopped_is_answered_by_the_next(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.threads.resolve(REF)
        desk.threads._office.ring = lambda thread_id: None  # type: ignore[method-assign]  # deaf
        desk.threads._office.look_for_work = _nothing  # type: ignore[method-assign]  # and blind
        await desk.say("say late", "m1")
    async with street.daemon() as desk:
        assert (await desk.ended("m1")).row.answer == "late\n"


async def _nothing() -> None:
    return


async def test_a_daemon_that_was_killed_is_followed_at_once_by_the_next_on_its_host(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed: it gave nothing back. The lease is long; but it is in the host's name, and the host knows."""

    async def killed(_owner: str) -> list[str]:
        return []

    async with street.daemon(lease_seconds=1000.0) as desk:
        await desk.say("say one two\nwait-for /workspace/go\nsay three", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        thread = await desk.threads.get(REF)
        monkeypatch.setattr(street.store.leases, "release_all", killed)
    monkeypatch.undo()
    assert (await street.store.threads.get(thread.row.id)).lease_owner == desk.tools.node
    await go(street)
    async with street.daemon(lease_seconds=1000.0) as desk:
        turn = await desk.ended("m1")
        assert text_of(await desk.events()).split() == ["one", "two", "three"]
    assert turn.row.stop_reason == "end_turn"
    assert len(street.agents.ran) == 1


@pytest.mark.parametrize("state", ["queued", "streaming", "asking"])
async def test_daemons_that_change_every_moment(street: Street, state: str) -> None:
    """Ten daemons, each cut off where it is; the text is whole and nothing is there twice."""
    script = {
        "queued": "say a b c d e f g h i j",
        "streaming": "\n".join(f"say {letter}\nsleep 0.02" for letter in "abcdefghij"),
        "asking": "ask-within 0.3 really? | yes | no\nsay a b c d e f g h i j",
    }[state]
    for number in range(10):
        async with street.daemon() as desk:
            await desk.say(script, "m1")
            await linger(0.013 * number)
    async with street.daemon() as desk:
        turn = await desk.ended("m1")
        events = await desk.events()
    assert turn.row.stop_reason == "end_turn"
    said = text_of(events).split()
    assert [word for word in said if len(word) == 1] == list("abcdefghij")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events].count(Kind.FINALIZE) == 1
    assert len(street.agents.ran) == 1
    assert len(street.sandboxes()) == 1


async def test_a_question_is_still_open_after_a_restart_and_is_closed_at_its_deadline(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("ask-within 0.4 which? | left | right", "m1")
        await desk.wait_for(Kind.QUESTION)
    async with street.daemon() as desk:
        turn = await desk.ended("m1")
    assert turn.row.answer == "answer: left\n"


async def test_a_follower_goes_from_daemon_to_daemon_and_sees_each_event_once(street: Street) -> None:
    seen: list[ThreadEventRow] = []

    async def follow(events: AsyncIterator[ThreadEventRow]) -> None:
        async for event in events:
            seen.append(event)
            if event.kind == Kind.FINALIZE:
                return

    async with street.daemon() as desk:
        await desk.say("\n".join(f"say {n}\nsleep 0.02" for n in range(12)), "m1")
    daemons = 0
    while not seen or seen[-1].kind != Kind.FINALIZE:
        async with street.daemon() as desk:
            daemons += 1
            follower = asyncio.create_task(follow(desk.threads.follow(REF, after=seen[-1].seq if seen else 0)))
            await asyncio.wait([follower], timeout=0.05 if daemons < 4 else 5)
        await asyncio.wait_for(follower, 5)  # ends with its daemon
    assert daemons > 1
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert text_of(seen).split() == [str(n) for n in range(12)]


async def test_an_abort_stored_while_no_daemon_was_there_is_done(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("say one\nwait-for /workspace/never", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        thread = await desk.threads.get(REF)
    await street.store.thread_requests.put(thread.row.id, id="req_1", kind="abort", data={"channel": "default"})
    async with street.daemon() as desk:
        assert (await desk.ended("m1")).row.stop_reason == "canceled"
        await until(lambda: not desk.threads._office.works_on(thread.row.id), "at rest")
    assert (await street.store.thread_requests.get("req_1")).done_at is not None


async def test_nothing_is_held_when_all_is_done(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        thread = await desk.threads.get(REF)
        await until(lambda: not desk.threads._office.works_on(thread.row.id), "at rest")
        row = await street.store.threads.get(thread.row.id)
        assert row.lease_owner is None
        assert await street.store.leases.abandoned(limit=10) == []
