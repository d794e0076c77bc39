"""Named tunnels: each change is told, to followers of session and thread; the next sandbox of a thread has them too."""

import asyncio

import pytest

from contract.store.rows import NOW, a_row
from contract.store.threads.talk import THREAD, kinds, leased
from holdfast.errors import TooManyTunnels, TunnelNotFound
from holdfast.records.events import EventRow
from holdfast.records.gateway import HostHeader, TunnelRow
from holdfast.records.machine import Status
from holdfast.store import Store

pytestmark = pytest.mark.anyio


def a_tunnel(name: str = "web", port: int = 3000, session: str = "ses_1", host: HostHeader | None = None) -> TunnelRow:
    return TunnelRow(session_id=session, name=name, port=port, host=host, created_at=NOW)


async def put(store: Store, row: TunnelRow, most: int = 50) -> TunnelRow:
    return await store.tunnels.put(row, owner="ann", most=most)


async def names(store: Store, session: str) -> dict[str, int]:
    return {one.name: one.port for one in await store.tunnels.of_session(session)}


async def told(store: Store) -> list[EventRow]:
    return [one for one in (await store.events.page(after=None, limit=1000)).events if one.kind == "tunnels"]


def names_told(event: EventRow) -> list[str]:
    tunnels = event.data["tunnels"]
    assert isinstance(tunnels, list)
    return [one["name"] for one in tunnels]


async def test_each_change_is_an_event_and_no_change_is_none(store: Store) -> None:
    made = await put(store, a_tunnel())
    assert await put(store, a_tunnel()) == made
    moved = await put(store, a_tunnel(port=3001, host=HostHeader.PASS))
    assert (moved.port, moved.host, moved.created_at) == (3001, HostHeader.PASS, NOW)
    await put(store, a_tunnel("api", 8000))
    await store.tunnels.remove("ses_1", "web", owner="ann", now=NOW)
    with pytest.raises(TunnelNotFound):
        await store.tunnels.remove("ses_1", "web", owner="ann", now=NOW)
    events = await told(store)
    assert [names_told(event) for event in events] == [
        ["web"],
        ["web"],
        ["api", "web"],
        ["api"],
    ]
    assert {(event.session_id, event.owner, event.thread_id) for event in events} == {("ses_1", "ann", None)}
    assert events[1].data["tunnels"] == [{"name": "web", "port": 3001, "host": "pass"}]


async def test_a_session_has_so_many(store: Store) -> None:
    for number in range(3):
        await put(store, a_tunnel(f"t{number}"), most=3)
    with pytest.raises(TooManyTunnels):
        await put(store, a_tunnel("more"), most=3)
    assert (await put(store, a_tunnel("t1", 4000), most=3)).port == 4000, "one that is there can still be moved"
    await put(store, a_tunnel("other", session="ses_2"), most=3)


async def test_many_at_once(store: Store) -> None:
    """They are as many as may be, each once, and none fails in another way."""
    calls = [put(store, a_tunnel(f"t{number % 8}", 3000 + number), most=5) for number in range(24)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in done} == {TunnelRow, TooManyTunnels}
    assert len(await names(store, "ses_1")) == 5


async def test_followers_of_the_thread_are_told(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    await put(store, a_tunnel())
    await store.tunnels.remove("ses_1", "web", owner="ann", now=NOW)
    assert await kinds(store) == ["tunnels", "tunnels"]
    page = await store.thread_events.page(THREAD, after=0, limit=10)
    assert page.events[0].data == {
        "session_id": "ses_1",
        "tunnels": [{"name": "web", "port": 3000, "host": None}],
    }
    assert {(event.thread_id, event.thread_key) for event in await told(store)} == {(THREAD, "slack:T1:1")}


async def test_the_next_sandbox_of_a_thread_has_the_names(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    await put(store, a_tunnel())
    row = await store.threads.set_session(lease, "ses_2")
    assert (await names(store, "ses_2"), await names(store, "ses_1")) == ({"web": 3000}, {})
    assert row.last_seq == (await store.threads.get(THREAD)).last_seq == 2
    assert (await told(store))[-1].session_id == "ses_2"
    await store.threads.set_session(lease, "ses_2")
    assert len(await told(store)) == 2, "nothing has changed"


async def test_names_wait_for_a_thread_that_has_no_sandbox(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    await put(store, a_tunnel())
    await store.threads.set_session(lease, None)
    assert await names(store, "ses_1") == {}
    await store.links.prune(now=NOW)
    await store.threads.set_session(lease, "ses_2")
    assert await names(store, "ses_2") == {"web": 3000}
    await store.links.prune(now=NOW)
    assert await names(store, "ses_2") == {"web": 3000}, "also where the session is not known: the thread may look yet"


async def test_a_name_that_the_next_sandbox_has_already_stays_its_own(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    await put(store, a_tunnel())
    await put(store, a_tunnel("api", 8000))
    await put(store, a_tunnel(port=4000, session="ses_2"))
    await store.threads.set_session(lease, "ses_2")
    assert (await names(store, "ses_2"), await names(store, "ses_1")) == ({"api": 8000, "web": 4000}, {})


async def test_names_go_with_their_session_and_with_their_thread(store: Store) -> None:
    await store.sessions.insert(a_row(1), max_live=None)
    await store.sessions.insert(a_row(2, status=Status.DESTROYED), max_live=None)
    for session in ("ses_0001", "ses_0002"):
        await put(store, a_tunnel(session=session))
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_9")
    await put(store, a_tunnel(session="ses_9"))
    await store.links.prune(now=NOW)
    assert [await names(store, one) for one in ("ses_0001", "ses_0002", "ses_9")] == [{"web": 3000}, {}, {"web": 3000}]
    await store.threads.delete(lease)
    await store.threads.set_session(lease, None)
    await store.links.prune(now=NOW)
    assert [await names(store, one) for one in ("ses_9", THREAD)] == [{}, {}]
