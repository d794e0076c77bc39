"""Daemons come and go in the middle of turns; each delta is there once, and each turn ends once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.records.threads import ThreadEventRow
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio


async def go(site: FakeSite, path: str = "/workspace/go") -> None:
    """Let the agent that waits for this file go on."""
    for sandbox in site.host.world.sandboxes.values():
        assert sandbox.runner is not None
        sandbox.runner.files[path] = b""


async def test_a_turn_goes_on_with_the_next_daemon(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("say one two\nwait-for /workspace/go\nsay three four", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
    await go(site)  # the agent works on while there is no daemon
    async with site.daemon() as daemon:
        turn = await daemon.ended("m1")
        events = await daemon.events()
    assert turn.row.stop_reason == "end_turn"
    assert text_of(events).split() == ["one", "two", "three", "four"]
    assert [event.kind for event in events].count(Kind.FINALIZE) == 1
    assert len(site.agents.ran) == 1


async def test_a_message_stored_as_the_daemon_stopped_is_answered_by_the_next(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.threads.resolve(REF)
        daemon.threads._office.ring = lambda thread_id: None  # type: ignore[method-assign]  # deaf
        daemon.threads._office.look_for_work = _nothing  # type: ignore[method-assign]  # and blind
        await daemon.say("say late", "m1")
    async with site.daemon() as daemon:
        assert (await daemon.ended("m1")).row.answer == "late\n"


async def _nothing() -> None:
    return


async def test_a_daemon_that_was_killed_is_followed_at_once_by_the_next_on_its_host(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed: it gave nothing back. The lease is long; but it is in the host's name, and the host knows."""

    async def killed(_owner: str) -> list[str]:
        return []

    async with site.daemon(lease_seconds=1000.0) as daemon:
        await daemon.say("say one two\nwait-for /workspace/go\nsay three", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        thread = await daemon.threads.get(REF)
        monkeypatch.setattr(site.store.leases, "release_all", killed)
    monkeypatch.undo()
    assert (await site.store.threads.get(thread.row.id)).lease_owner == daemon.tools.node
    await go(site)
    async with site.daemon(lease_seconds=1000.0) as daemon:
        turn = await daemon.ended("m1")
        assert text_of(await daemon.events()).split() == ["one", "two", "three"]
    assert turn.row.stop_reason == "end_turn"
    assert len(site.agents.ran) == 1


@pytest.mark.parametrize("state", ["queued", "streaming", "asking"])
async def test_daemons_that_change_every_moment(site: FakeSite, state: str) -> None:
    """Ten daemons, each cut off where it is; the text is whole and nothing is there twice."""
    script = {
        "queued": "say a b c d e f g h i j",
        "streaming": "\n".join(f"say {letter}\nsleep 0.02" for letter in "abcdefghij"),
        "asking": "ask-within 0.3 really? | yes | no\nsay a b c d e f g h i j",
    }[state]
    for number in range(10):
        async with site.daemon() as daemon:
            await daemon.say(script, "m1")
            await linger(0.013 * number)
    async with site.daemon() as daemon:
        turn = await daemon.ended("m1")
        events = await daemon.events()
    assert turn.row.stop_reason == "end_turn"
    said = text_of(events).split()
    assert [word for word in said if len(word) == 1] == list("abcdefghij")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events].count(Kind.FINALIZE) == 1
    assert len(site.agents.ran) == 1
    assert len(site.sandboxes()) == 1


async def test_a_question_is_still_open_after_a_restart_and_is_closed_at_its_deadline(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("ask-within 0.4 which? | left | right", "m1")
        await daemon.wait_for(Kind.QUESTION)
    async with site.daemon() as daemon:
        turn = await daemon.ended("m1")
    assert turn.row.answer == "answer: left\n"


async def test_a_follower_goes_from_daemon_to_daemon_and_sees_each_event_once(site: FakeSite) -> None:
    seen: list[ThreadEventRow] = []

    async def follow(events: AsyncIterator[ThreadEventRow]) -> None:
        async for event in events:
            seen.append(event)
            if event.kind == Kind.FINALIZE:
                return

    async with site.daemon() as daemon:
        await daemon.say("\n".join(f"say {n}\nsleep 0.02" for n in range(12)), "m1")
    daemons = 0
    while not seen or seen[-1].kind != Kind.FINALIZE:
        async with site.daemon() as daemon:
            daemons += 1
            follower = asyncio.create_task(follow(daemon.threads.follow(REF, after=seen[-1].seq if seen else 0)))
            await asyncio.wait([follower], timeout=0.05 if daemons < 4 else 5)
        await asyncio.wait_for(follower, 5)  # ends with its daemon
    assert daemons > 1
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert text_of(seen).split() == [str(n) for n in range(12)]


async def test_an_abort_stored_while_no_daemon_was_there_is_done(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("say one\nwait-for /workspace/never", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        thread = await daemon.threads.get(REF)
    await site.store.thread_requests.put(thread.row.id, id="req_1", kind="abort", data={"channel": "default"})
    async with site.daemon() as daemon:
        assert (await daemon.ended("m1")).row.stop_reason == "canceled"
        await until(lambda: not daemon.threads._office.works_on(thread.row.id), "at rest")
    assert (await site.store.thread_requests.get("req_1")).done_at is not None


async def test_nothing_is_held_when_all_is_done(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        thread = await daemon.threads.get(REF)
        await until(lambda: not daemon.threads._office.works_on(thread.row.id), "at rest")
        row = await site.store.threads.get(thread.row.id)
        assert row.lease_owner is None
        assert await site.store.leases.abandoned(limit=10) == []
