"""Events of real lives on the fake machine: each change is told once, whatever dies, and readers miss nothing."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from holdfast.callers.types import ROOT
from holdfast.errors import BadInput, DriverTransient
from holdfast.records.events import EventRow
from holdfast.records.machine import Status
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.telling.events import PAGE, EventFeed, Filter, Gap
from holdfast.sessions.types import CreateRequest
from holdfast.store import Store
from support.fake_host import FakeHost, new, tick, until

pytestmark = pytest.mark.anyio

ALL = Filter()


@asynccontextmanager
async def a_feed(host: FakeHost, poll_seconds: float = 3600) -> AsyncIterator[EventFeed]:
    """Without polling, unless asked for: what wakes readers is the change itself."""
    feed = EventFeed(host.store.events, poll_seconds=poll_seconds)
    async with feed.running():
        yield feed


async def told(host: FakeHost) -> list[tuple[int, str, object]]:
    page = await host.store.events.page(after=None, limit=1000)
    return [(event.seq, event.kind, event.data["reason"]) for event in page.events]


async def take(events: AsyncGenerator[EventRow | Gap, None], count: int) -> list[EventRow | Gap]:
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


async def test_a_life(host: FakeHost) -> None:
    async with host.daemon() as service:
        view = await service.create(
            CreateRequest(metadata={"a": "b"}, env={"TOKEN": "hunter2"}), idempotency_key="k", caller=ROOT
        )
        await service.create(
            CreateRequest(metadata={"a": "b"}, env={"TOKEN": "hunter2"}), idempotency_key="k", caller=ROOT
        )
        await service.destroy(view.id)
        await service.destroy(view.id)
    assert await told(host) == [(1, "created", None), (2, "active", None), (3, "destroyed", "requested")]
    page = await host.store.events.page(after=None, limit=10)
    assert page.events[1].data == {
        "status": "active",
        "reason": None,
        "error": None,
        "image": "empty",
        "metadata": {"a": "b"},
    }
    assert all("hunter2" not in str(event) for event in page.events)


async def test_a_create_that_fails(host: FakeHost) -> None:
    async with host.daemon() as service:
        host.driver.inject("create", error=DriverTransient("the disk is slow"))
        with pytest.raises(DriverTransient):
            await new(service)
    kinds = [(kind, reason) for _, kind, reason in await told(host)]
    assert kinds == [("created", None), ("error", "create_failed"), ("destroyed", "create_failed")]
    events = (await host.store.events.page(after=None, limit=10)).events
    assert events[1].data["error"] == "the disk is slow"


async def test_a_destroy_that_fails_is_told_once_it_is_done(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        host.driver.inject("destroy", error=DriverTransient("busy"), times=2)
        with pytest.raises(DriverTransient):
            await service.destroy(session_id)
        await tick(service)
        assert [kind for _, kind, _ in await told(host)] == ["created", "active"]
        await tick(service)
    assert [kind for _, kind, _ in await told(host)] == ["created", "active", "destroyed"]


async def test_expiry(host: FakeHost) -> None:
    async with host.daemon() as service:
        await new(service, ttl=5)
        host.clock.now += 6
        await tick(service)
        await tick(service)
    kinds = [(kind, reason) for _, kind, reason in await told(host)]
    assert kinds == [("created", None), ("active", None), ("expired", "expired"), ("destroyed", "expired")]


@pytest.mark.parametrize(("oom", "kinds"), [(False, ["error"]), (True, ["oom", "error"])])
async def test_a_crash(host: FakeHost, oom: bool, kinds: list[str]) -> None:
    async with host.daemon() as service:
        session_id = await new(service)
        await host.driver.kill(session_id, oom=oom)
        await until(lambda: host.is_in(session_id, Status.ERROR), "the crash is noticed")
        await tick(service)
        assert [(kind, reason) for _, kind, reason in (await told(host))[2:]] == [(kind, "crashed") for kind in kinds]
        await service.destroy(session_id)
    assert (await told(host))[-1][1:] == ("destroyed", "crashed")


async def test_a_daemon_that_dies_in_a_create_tells_nothing_twice(host: FakeHost) -> None:
    """The row says how far it was; the next daemon goes on, and tells the rest."""
    async with host.daemon() as service:
        await host.add_row(Status.CREATING, "ses_cut", service)
        await host.store.events.record("created", "ses_cut", data={"reason": None}, now=host.clock())
        await tick(service)
        await until(lambda: host.is_in("ses_cut", Status.ACTIVE), "it is finished")
        await tick(service)
    assert [kind for _, kind, _ in await told(host)] == ["created", "active"]
    async with host.daemon() as service:  # it is adopted, which is no news
        await service.destroy("ses_cut")
    assert [kind for _, kind, _ in await told(host)] == ["created", "active", "destroyed"]


async def test_old_events_are_pruned_by_the_tick(host: FakeHost) -> None:
    async with host.daemon() as service:
        await new(service, ttl=10_000)
        host.clock.now += 7 * 24 * 3600 + 1
        await tick(service)
    page = await host.store.events.page(after=0, limit=10)
    assert page.lost(0) and page.oldest == 3 and [event.kind for event in page.events] == ["expired", "destroyed"]


# -- the feed --------------------------------------------------------------------------------------------------------


async def test_a_reader_gets_the_past_and_then_the_present(host: FakeHost) -> None:
    async with host.daemon() as service, a_feed(host) as feed:
        first = await new(service)
        async with aclosing(feed.follow(0, ALL)) as events:
            assert [event.kind for event in await take(events, 2) if isinstance(event, EventRow)] == [
                "created",
                "active",
            ]
            waiting = asyncio.create_task(take(events, 3))
            await until(lambda: feed.waiting == 1, "it waits")
            assert not waiting.done()
            await service.destroy(first)
            second = await new(service)
            await waiting
            got = [
                (event.seq, event.kind, event.session_id) for event in waiting.result() if isinstance(event, EventRow)
            ]
            assert got == [(3, "destroyed", first), (4, "created", second), (5, "active", second)]
        assert feed.waiting == 0


async def test_filters_and_pages(host: FakeHost) -> None:
    async with a_feed(host) as feed:
        for n in range(PAGE + 5):
            kind = EventKind.ERROR if n % 2 else EventKind.CREATED
            await host.store.events.record(kind, f"ses_{n % 3}", data={}, now=1.0)
        async with aclosing(feed.follow(None, ALL)) as events:
            everything = [event.seq for event in await take(events, PAGE + 5) if isinstance(event, EventRow)]
        assert everything == list(range(1, PAGE + 6))
        async with aclosing(feed.follow(3, Filter(session_id="ses_1", kinds=[EventKind.ERROR]))) as events:
            [one, two] = await take(events, 2)
            assert isinstance(one, EventRow) and isinstance(two, EventRow)
            assert (one.seq, two.seq) == (8, 14)
        page = await feed.page(3, 1, Filter(session_id="ses_1", kinds=[EventKind.ERROR]))
        assert ([event.seq for event in page.events], page.next) == ([8], 8)


async def test_a_reader_that_fell_behind_is_told_so(host: FakeHost) -> None:
    async with a_feed(host) as feed:
        for n in range(5):
            await host.store.events.record("created", "ses_1", data={}, now=float(n))
        await host.store.events.prune(3.0)
        async with aclosing(feed.follow(1, ALL)) as events:
            assert (await take(events, 1)) == [Gap(after=1, oldest=4)]
            assert [event.seq for event in await take(events, 2) if isinstance(event, EventRow)] == [4, 5]
            waiting = asyncio.create_task(take(events, 2))
            await until(lambda: feed.waiting == 1, "it waits")
            # While it sleeps, events come and go: also then it hears of it.
            store = host.store.events
            store.listeners.clear()
            await store.record("created", "ses_1", data={}, now=6.0)
            await store.prune(7.0)
            await store.record("active", "ses_1", data={}, now=8.0)
            feed.wake()
            gap, event = await waiting
            assert gap == Gap(after=5, oldest=7) and isinstance(event, EventRow) and event.seq == 7
        async with aclosing(feed.follow(None, ALL)) as events:  # from the oldest, whichever that is: no gap
            [event] = await take(events, 1)
            assert isinstance(event, EventRow) and event.seq == 7


async def test_a_number_from_elsewhere_is_refused(host: FakeHost) -> None:
    async with a_feed(host) as feed:
        with pytest.raises(BadInput, match="5 is beyond the newest event, which is 0"):
            await feed.page(5, 10, ALL)
        with pytest.raises(BadInput):
            await anext(feed.follow(1, ALL))


async def test_what_another_daemon_adds_is_found_by_polling(host: FakeHost) -> None:
    other = await Store.open(f"sqlite:///{host.root / 'test.db'}")
    async with a_feed(host, poll_seconds=0.01) as feed, aclosing(feed.follow(0, ALL)) as events:
        waiting = asyncio.create_task(take(events, 1))
        await until(lambda: feed.waiting == 1, "it waits")
        await other.events.record("created", "ses_other", data={}, now=1.0)
        [event] = await waiting
        assert isinstance(event, EventRow) and event.session_id == "ses_other"
    await other.close()


async def test_closing_ends_every_reader_and_leaves_no_task(host: FakeHost) -> None:
    before = asyncio.all_tasks()
    async with a_feed(host) as feed:
        readers = [asyncio.create_task(anext(feed.follow(0, ALL), None)) for _ in range(20)]
        await until(lambda: feed.waiting == 20, "all wait")
        readers[0].cancel()  # a client that goes away
        await until(lambda: feed.waiting == 19, "it is forgotten")
        feed.close()
        assert await asyncio.gather(*readers[1:]) == [None] * 19
        assert feed.waiting == 0
    assert asyncio.all_tasks() == before


async def test_twenty_readers_see_the_same_while_sessions_come_and_go(host: FakeHost) -> None:
    async with host.daemon() as service, a_feed(host) as feed:
        readers = [asyncio.create_task(take(feed.follow(0, ALL), 30)) for _ in range(20)]
        made = await asyncio.gather(*(new(service) for _ in range(10)))
        await asyncio.gather(*(service.destroy(session_id) for session_id in made))
        seen = await asyncio.gather(*readers)
    assert all(one == seen[0] for one in seen)
    assert [event.seq for event in seen[0] if isinstance(event, EventRow)] == list(range(1, 31))
    for session_id in made:
        kinds = [event.kind for event in seen[0] if isinstance(event, EventRow) and event.session_id == session_id]
        assert kinds == ["created", "active", "destroyed"]
