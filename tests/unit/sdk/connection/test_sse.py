"""Following events through the SDK: filters, gaps, daemons that go and come back, and the synchronous face of it."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from anyio.from_thread import start_blocking_portal

from holdfast.errors import BadInput, HoldfastError, Unauthorized, Unavailable
from holdfast.sdk import Client, SessionEvent, SyncClient
from holdfast.sdk.sessions import events as module
from holdfast.sdk.sync.portal import iterate
from support.api_host import ApiHost
from support.daemons.daemon import wait_for
from support.waiting import linger, until

pytestmark = pytest.mark.anyio


async def take(events: AsyncGenerator[SessionEvent, None], count: int) -> list[SessionEvent]:
    async with asyncio.timeout(30), aclosing(events):
        return [await anext(events) for _ in range(count)]


async def hang_up(api: ApiHost) -> None:
    """As a daemon that stops in order."""
    api.events.close()


async def fail(api: ApiHost, error: HoldfastError) -> None:
    """Let all that reads events fail, also what waits for some."""

    async def page(**_query: object) -> None:
        raise error

    api.store.events.page = page  # type: ignore[method-assign, assignment]  # until it recovers
    api.events.wake()


async def recover(api: ApiHost) -> None:
    vars(api.store.events).pop("page", None)
    api.events._closed = False


async def test_the_past_and_the_present(api: ApiHost, client: Client) -> None:
    api.run(api.tell("created", status="creating", metadata={"a": "b"}))
    async with aclosing(client.events()) as events:
        first = await anext(events)
        assert (first.seq, first.kind, first.session_id) == (1, "created", "ses_1")
        assert first.data == {"status": "creating", "metadata": {"a": "b"}}
        assert first.at is not None and first.at.isoformat() == "2023-11-14T22:13:21.250000+00:00"
        coming = asyncio.create_task(anext(events))
        await linger()
        assert not coming.done()
        api.run(api.tell("error"))
        assert (await coming).kind == "error", "an event of that name is no failure of the stream"
    await until(lambda: api.events.waiting == 0, "leaving ends the stream")


async def test_only_some(api: ApiHost, client: Client) -> None:
    for n in range(6):
        api.run(api.tell("error" if n % 2 else "created", session_id=f"ses_{n % 3}"))
    assert [event.seq for event in await take(client.events(2, kinds="error"), 2)] == [4, 6]
    assert [event.seq for event in await take(client.events(kinds=["created", "error"]), 6)] == [1, 2, 3, 4, 5, 6]
    assert [event.seq async for event in client.events(session_id="ses_1", follow=False)] == [2, 5]


async def test_without_waiting(api: ApiHost, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    assert [event async for event in client.events(follow=False)] == []
    for _ in range(7):
        api.run(api.tell("created"))
    assert [event.seq async for event in client.events(follow=False)] == list(range(1, 8))
    assert api.run(api.store.events.prune(1_700_000_004)) == 3
    seen = [(event.seq, event.kind) async for event in client.events(1, follow=False)]
    assert seen == [(3, "gap"), (4, "created"), (5, "created"), (6, "created"), (7, "created")]


async def test_a_gap(api: ApiHost, client: Client) -> None:
    for _ in range(3):
        api.run(api.tell("created"))
    assert api.run(api.store.events.prune(1_700_000_003)) == 2
    gap, event = await take(client.events(0), 2)
    assert gap == SessionEvent(2, "gap", None, None, {"after": 0, "oldest": 3})
    assert event.seq == 3


async def test_a_stream_that_ends_or_fails_is_taken_up_again(api: ApiHost, client: Client) -> None:
    """Each event once, in order, whatever happens in between."""
    seen: list[int] = []

    async def read() -> None:
        async for event in client.events():
            seen.append(event.seq)

    reading = asyncio.create_task(read())
    api.run(api.tell("created"))
    for n in range(2, 8):
        await until(lambda n=n: seen == list(range(1, n)), "it has all so far")  # type: ignore[misc]  # bound early
        if n % 2:
            api.run(hang_up(api))
        else:
            api.run(fail(api, Unavailable("the database is away")))  # told in the stream, then in error replies
        await until(lambda: api.events.waiting == 0, "the stream has ended")
        api.run(recover(api))
        api.run(api.tell("active"))
    await until(lambda: seen == list(range(1, 8)), "nothing is lost, nothing comes twice")
    reading.cancel()
    await asyncio.wait([reading])


async def test_a_daemon_that_was_never_there(client: Client) -> None:
    async with Client("http://127.0.0.1:1", "k" * 20, retries=0) as nobody:
        with pytest.raises(Unavailable, match="no daemon answers"):
            await anext(nobody.events())


async def test_what_cannot_get_better_is_raised(api: ApiHost, client: Client) -> None:
    with pytest.raises(BadInput, match="beyond the newest"):
        await anext(client.events(5))
    with pytest.raises(BadInput, match="kind"):
        await anext(client.events(kinds="nonsense"))
    async with Client(api.url, "wrong-key-0123456789") as stranger:
        with pytest.raises(Unauthorized):
            await anext(stranger.events())
    api.run(api.tell("created"))
    async with aclosing(client.events()) as events:
        await anext(events)
        api.run(fail(api, HoldfastError("a bug")))
        with pytest.raises(HoldfastError, match="a bug"):
            await anext(events)


# -- sync ------------------------------------------------------------------------------------------------------------


def test_sync(api: ApiHost) -> None:
    with SyncClient(api.url, api.key) as client:
        for _ in range(3):
            api.run(api.tell("created"))
        assert [event.seq for event in client.events(follow=False)] == [1, 2, 3]
        for event in client.events(after=1):
            if event.seq == 4:
                break
            if event.seq == 3:
                api.run(api.tell("destroyed"))
        assert event.kind == "destroyed"
        with pytest.raises(BadInput, match="beyond"):
            next(client.events(99))
    wait_for(lambda: api.events.waiting == 0, "leaving the loop has ended the stream")


def test_an_async_generator_as_an_ordinary_one() -> None:
    """One task goes along it from beginning to end, and it is closed in that task, however it is left."""
    tasks: set[int] = set()
    closed = threading.Event()

    def note() -> None:
        tasks.add(id(asyncio.current_task()))

    async def numbers(limit: int | None) -> AsyncGenerator[int, None]:
        n = 0
        note()
        try:
            async with asyncio.timeout(60):
                while limit is None or n < limit:
                    n += 1
                    note()
                    yield n
                    await asyncio.sleep(0)
                if limit == 3:
                    raise Unavailable("that was it")
        finally:
            note()
            closed.set()

    with start_blocking_portal("asyncio") as portal:
        assert list(iterate(portal, numbers(2))) == [1, 2]
        assert closed.is_set() and len(tasks) == 1

        closed.clear()
        tasks.clear()
        endless = iterate(portal, numbers(None))
        assert [next(endless), next(endless)] == [1, 2]
        endless.close()
        assert closed.is_set() and len(tasks) == 1, "leaving it has closed it, before close returned"

        seen = []
        with pytest.raises(Unavailable, match="that was it"):
            for n in iterate(portal, numbers(3)):
                seen.append(n)
        assert seen == [1, 2, 3]

        async def silent() -> AsyncGenerator[int, None]:
            try:
                yield 1
                await asyncio.Event().wait()
            finally:
                closed.set()

        closed.clear()
        waiting = iterate(portal, silent())
        assert next(waiting) == 1
        waiting.close()  # while the other side waits for what never comes
        assert closed.is_set()
