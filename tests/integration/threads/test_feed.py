"""Following a thread: in order, each event once, and cheap for many."""

import asyncio
import contextlib
from unittest.mock import AsyncMock

import pytest

from holdfast.errors import BadInput, HoldfastError, ThreadNotFound
from holdfast.threads.names import ThreadRef
from holdfast.vocabulary.turn_events import Kind, TurnEvent
from support.threads.threads import PATIENCE, REF, FakeSite, ThreadDaemon
from support.waiting import until

pytestmark = pytest.mark.anyio


async def follow(daemon: ThreadDaemon, after: int = 0) -> list[int]:
    seen = []
    async for event in daemon.threads.follow(REF, after=after):
        seen.append(event.seq)
        if event.kind == Kind.FINALIZE:
            break
    return seen


async def test_a_hundred_followers_cost_about_as_many_reads_as_one(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.threads.resolve(REF)
        reads = 0
        real = site.store.thread_events.page

        async def counting(*args: object, **more: object) -> object:
            nonlocal reads
            reads += 1
            return await real(*args, **more)  # type: ignore[arg-type]  # passed on as they came

        site.store.thread_events.page = counting  # type: ignore[method-assign, assignment]  # the real one, and counts
        start = await site.store.thread_events.newest((await daemon.threads.get(REF)).row.id)
        followers = [asyncio.create_task(follow(daemon, start)) for _ in range(100)]
        tails = daemon.threads._feed._tails
        await until(lambda: sum(tail.followers for tail in tails.values()) == 100, "all of them follow")
        before = reads
        await daemon.say("\n".join(["run echo x"] * 250), "m1")  # words that come together are one event
        seen = await asyncio.gather(*followers)
    assert all(one == seen[0] for one in seen)
    assert seen[0] == list(range(start + 1, start + 1 + len(seen[0])))
    assert len(seen[0]) > 500
    assert reads - before < len(seen[0])  # and not a hundred times as many


async def test_a_follower_may_begin_anywhere(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("count 30", "m1")
        newest = (await daemon.threads.get(REF)).row.last_seq
        for after in (0, 1, newest // 2, newest - 1):
            assert await follow(daemon, after) == list(range(after + 1, newest + 1))
        with pytest.raises(BadInput):
            await follow(daemon, newest + 1)
        with pytest.raises(ThreadNotFound):
            async for _ in daemon.threads.follow(ThreadRef("root", "slack:unknown")):
                pass


async def test_pages(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("count 30", "m1")
        newest = (await daemon.threads.get(REF)).row.last_seq
        seen, after = [], 0
        while True:
            page = await daemon.threads.events(REF, after=after, limit=7)
            if not page.events:
                break
            seen += [event.seq for event in page.events]
            after = page.next
        assert page.newest == newest
        assert page.next == newest
    assert seen == list(range(1, newest + 1))


async def test_a_slow_follower_of_big_events_gets_them_all_and_memory_is_bounded(site: FakeSite) -> None:
    big = TurnEvent(Kind.TITLE, {"title": "x" * 1_000_000})
    async with site.daemon() as daemon:
        await daemon.threads.resolve(REF)
        thread = await daemon.threads.get(REF)
        async with contextlib.aclosing(daemon.threads.follow(REF)) as events:
            seen = [(await anext(events)).seq]
            newest = await site.store.thread_events.leave(thread.row.id, [big] * 25)
            tail = daemon.threads._feed._tails[thread.row.id]
            await until(lambda: tail.end == newest, "all are known")
            assert len(tail.events) < 10
            while seen[-1] < newest:
                seen.append((await anext(events)).seq)
        page = await daemon.threads.events(REF, after=newest - 25, limit=200)
    assert seen == list(range(1, newest + 1))
    assert (len(page.events), page.next, page.newest) == (4, newest - 21, newest)


async def test_listing_and_paging_of_threads_and_messages(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        for number in range(5):
            ref = ThreadRef("root", f"slack:T{number}")
            await daemon.talk("say hello", "m1", ref)
            await daemon.talk("say more", "m2", ref)
        await daemon.talk("say hello", "m1", ThreadRef("someone", "slack:T1"))
        first, more = await daemon.threads.list(owner="root", limit=3)
        rest, end = await daemon.threads.list(owner="root", limit=3, cursor=more)
        everyone, _ = await daemon.threads.list(owner=None, prefix="slack:T1")
        messages, cursor = await daemon.threads.messages(ThreadRef("root", "slack:T1"), limit=1)
        others, last = await daemon.threads.messages(ThreadRef("root", "slack:T1"), limit=1, cursor=cursor)
        with pytest.raises(BadInput):
            await daemon.threads.list(owner="root", cursor="nonsense")
    assert sorted(thread.row.key for thread in [*first, *rest]) == [f"slack:T{number}" for number in range(5)]
    assert (len(first), len(rest), end) == (3, 2, None)
    assert sorted(thread.row.owner for thread in everyone) == ["root", "someone"]
    assert [message.id for message in [*messages, *others]] == ["m1", "m2"]
    assert last is None


async def test_a_follower_does_not_wait_for_what_cannot_be_read(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        newest = (await daemon.threads.get(REF)).row.last_seq
        follower = asyncio.create_task(follow(daemon, newest))
        tails = daemon.threads._feed._tails
        await until(lambda: any(tail.followers for tail in tails.values()), "it follows")
        with monkeypatch.context() as patch:
            patch.setattr(site.store.thread_events, "page", AsyncMock(side_effect=ValueError("a row that is none")))
            (tail,) = tails.values()
            tail.bell.set()
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(HoldfastError, match="log says why"):
                    await follower
        await daemon.say("say more", "m2")
        assert await follow(daemon, newest), "the next one begins anew"
