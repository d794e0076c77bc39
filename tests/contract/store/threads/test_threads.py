"""Rows of threads: found by their key, paged by activity, changed under the lease, deleted and purged."""

import asyncio
import dataclasses

import pytest
import sqlalchemy as sa

from contract.store.rows import a_row
from contract.store.threads.talk import THREAD, a_lease, a_thread, a_turn, kinds, leased, say
from holdfast.errors import StaleRow, ThreadNotFound
from holdfast.records.threads import (
    ChannelChange,
    ChannelRow,
    FileKind,
    MessageRow,
    MessageStatus,
    NodeRow,
    RequestRow,
    SleepState,
    Standing,
    ThreadChange,
    ThreadEventRow,
    ThreadFileRow,
    ThreadRow,
    TurnRow,
    TurnState,
    fresh_after,
)
from holdfast.store import Store
from holdfast.store.pages import PAGE_BYTES
from holdfast.store.threads import tables
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio


def _ids(rows: list[ThreadRow]) -> list[str]:
    return [row.id for row in rows]


def test_rows_have_the_columns_of_their_tables() -> None:
    rows: dict[sa.Table, type] = {
        tables.threads: ThreadRow,
        tables.thread_channels: ChannelRow,
        tables.messages: MessageRow,
        tables.turns: TurnRow,
        tables.thread_events: ThreadEventRow,
        tables.thread_requests: RequestRow,
        tables.nodes: NodeRow,
    }
    for table, row in rows.items():
        names = {field.name for field in dataclasses.fields(row)}
        assert names - ({"after"} if row is MessageRow else set()) == set(table.columns.keys())
    assert ThreadChange.__annotations__.keys() < set(tables.threads.columns.keys())
    assert ChannelChange.__annotations__.keys() < set(tables.thread_channels.columns.keys())


async def test_the_same_key_is_the_same_thread(store: Store) -> None:
    settings: dict[str, object] = {"image": "python", "limits": {"cpus": 2}}
    made, new = await store.threads.get_or_create(
        id="thr_1", owner="ada", key="slack:T1:C1:17.1", agent="opencode", settings=settings
    )
    again, new_again = await store.threads.get_or_create(id="thr_2", owner="ada", key="slack:T1:C1:17.1", agent="pi")
    assert (new, new_again) == (True, False)
    assert again == made == await store.threads.get("thr_1") == await store.threads.by_key("ada", "slack:T1:C1:17.1")
    assert (made.platform, made.agent, made.settings, made.session_id) == ("slack", "opencode", settings, None)
    assert made.sleep_state == SleepState.NONE
    plain, _new = await store.threads.get_or_create(id="thr_3", owner="ada", key="demo", agent="pi")
    assert plain.platform == "other"


async def test_a_thread_with_all_that_belongs_to_it(store: Store) -> None:
    """In one look: as much as there is, and the same as one by one."""
    made = await a_thread(store)
    assert await store.threads.whole(made.owner, made.key) == (made, [])
    assert await store.threads.standing(made.id, "side") == Standing(made, None, None)
    await store.sessions.insert(a_row(1), max_live=None)
    lease = await a_lease(store)
    await store.threads.set_session(lease, a_row(1).id)
    for name in ("side", "default"):
        await store.threads.change_channel(lease, name, {"agent_session_id": f"of {name}"})
    now, channels = await store.threads.get(made.id), await store.threads.channels(made.id)
    assert await store.threads.whole(made.owner, made.key) == (now, channels)
    session = await store.sessions.get(a_row(1).id)
    assert await store.threads.standing(made.id, "side") == Standing(now, channels[1], session)
    assert await store.threads.standing(made.id, "other") == Standing(now, None, session)


async def test_all_threads_of_a_host_count_as_used(store: Store) -> None:
    for number, node in [(1, "here"), (2, "there")]:
        await a_thread(store, number)
        await store.sessions.insert(a_row(number, node=node), max_live=None)
        lease = await a_lease(store, number)
        await store.threads.set_session(lease, a_row(number).id)
    before = await store.leases.now()
    await store.threads.touch_all("here")
    used = [(await store.threads.get(f"thr_{number:04}")).last_activity_at >= before for number in (1, 2)]
    assert used == [True, False]


async def test_another_owner_has_another_thread_with_that_key(store: Store) -> None:
    mine = await a_thread(store, 1, owner="ada", key="dm:U1")
    theirs = await a_thread(store, 2, owner="bob", key="dm:U1")
    assert mine.id != theirs.id
    assert (await store.threads.by_key("bob", "dm:U1")).id == theirs.id


async def test_a_thread_that_is_not_there(store: Store) -> None:
    for call in [
        store.threads.get("thr_nope"),
        store.threads.by_key("root", "nope"),
        store.threads.whole("root", "nope"),
        store.threads.standing("thr_nope", "default"),
        store.threads.touch("thr_nope"),
        store.leases.take("thr_nope", owner="a", ttl=1),
        store.thread_events.newest("thr_nope"),
        store.thread_events.page("thr_nope", after=0, limit=1),
        say(store, "m", thread="thr_nope"),
        store.thread_requests.put("thr_nope", id="r", kind="abort", data={}),
    ]:
        with pytest.raises(ThreadNotFound):
            await call


async def test_pages_by_owner_and_prefix(store: Store) -> None:
    keys = ["slack:T1:a", "slack:T1:b", "slack:T10:c", "Slack:T1:d", "dm:U1", "slack:T1:é"]
    for number, key in enumerate(keys):
        await a_thread(store, number, owner="ada" if number % 2 else "bob", key=key)
    await store.threads.touch("thr_0000")  # last active first
    everything = (await store.threads.page(limit=10)).rows
    assert _ids(everything) == ["thr_0000", *(f"thr_{n:04}" for n in (5, 4, 3, 2, 1))]
    of_team = await store.threads.page(limit=10, key_prefix="slack:T1:")
    assert _ids(of_team.rows) == ["thr_0000", "thr_0005", "thr_0001"]
    assert _ids((await store.threads.page(limit=10, owner="ada")).rows) == ["thr_0005", "thr_0003", "thr_0001"]
    paged: list[str] = []
    after: tuple[float, str] | None = None
    while some := (await store.threads.page(limit=2, after=after)).rows:
        paged += _ids(some)
        after = (some[-1].last_activity_at, some[-1].id)
    assert paged == _ids(everything)


async def test_a_page_of_threads_with_much_to_tell_ends_early(store: Store) -> None:
    for n in range(4):
        settings = {"env": {"A": "a" * (PAGE_BYTES // 2)}}
        await store.threads.get_or_create(id=f"thr_{n}", owner="ada", key=f"k{n}", agent="fake", settings=settings)
    first = await store.threads.page(limit=10)
    last = first.rows[-1]
    rest = await store.threads.page(limit=10, after=(last.last_activity_at, last.id))
    assert (_ids(first.rows), first.more) == (["thr_3", "thr_2"], True)
    assert (_ids(rest.rows), rest.more) == (["thr_1", "thr_0"], False)


async def test_a_listing_changes_nothing(store: Store) -> None:
    made = await a_thread(store)
    await store.threads.page(limit=10)
    await store.thread_events.page(THREAD, after=0, limit=10)
    assert await store.threads.get(THREAD) == made


async def test_each_new_sandbox_counts_once(store: Store) -> None:
    lease = await leased(store)
    first = await store.threads.set_session(lease, "ses_1")
    assert (first.session_id, first.incarnation, first.sleep_state) == ("ses_1", 1, SleepState.AWAKE)
    assert (await store.threads.set_session(lease, "ses_1")).incarnation == 1
    gone = await store.threads.set_session(lease, None)
    assert (gone.session_id, gone.incarnation, gone.sleep_state) == (None, 1, SleepState.NONE)
    assert (await store.threads.set_session(lease, "ses_2")).incarnation == 2
    found = await store.threads.at_work("ses_2")
    assert found is not None
    assert (found[0].id, found[1]) == (THREAD, {})
    assert await store.threads.at_work("ses_1") is None


async def test_a_preview_is_that_of_the_sandbox_there_is(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    before = await store.threads.get(THREAD)
    await store.threads.note_preview(THREAD, "ses_1", "http://x/", "token", 1.5)
    row = await store.threads.get(THREAD)
    assert (row.preview_url, row.preview_token, row.preview_expires_at) == ("http://x/", "token", 1.5)
    assert (row.updated_at, row.inbox, row.generation) == (before.updated_at, before.inbox, before.generation)
    await store.threads.note_preview(THREAD, "ses_1", "https://provider.example/?a=1&tkn=theirs")
    row = await store.threads.get(THREAD)
    assert (row.preview_url, row.preview_token) == ("https://provider.example/?a=1", "theirs")
    row = await store.threads.set_session(lease, "ses_2")
    assert (row.preview_url, row.preview_token, row.preview_expires_at) == (None, None, None)
    await store.threads.note_preview(THREAD, "ses_1", "http://x/", "token", 1.5)
    assert (await store.threads.get(THREAD)).preview_url is None, "it is one of a sandbox that is gone"


async def test_threads_whose_host_is_dead(store: Store) -> None:
    for number, node in enumerate(["node-a", "node-b"], 1):
        await store.sessions.insert(a_row(number, node=node), max_live=None)
        await a_thread(store, number)
        await store.threads.set_session(await a_lease(store, number), f"ses_{number:04}")
    assert _ids(await store.threads.on_node("node-b")) == ["thr_0002"]


async def test_errors_are_counted_until_it_works_again(store: Store) -> None:
    lease = await leased(store)
    told = TurnEvent(Kind.ERROR, {"code": "unavailable", "message": "no"})
    await store.threads.note_error(lease, "disk \0 full", events=[told])
    noted = await store.threads.note_error(lease, "again")
    assert (noted.last_error, noted.resume_failures) == ("again", 2)
    assert await kinds(store) == ["error"]
    clear = await store.threads.clear_error(lease)
    assert (clear.last_error, clear.resume_failures) == (None, 0)


async def test_a_channel_is_made_when_it_is_first_spoken_of(store: Store) -> None:
    lease = await leased(store)
    assert await store.threads.channel(THREAD, "side") is None
    await store.threads.change_channel(lease, "side", {"agent_session_id": "a1", "title": "Über"})
    again = await store.threads.change_channel(lease, "side", {"agent_status": "thinking"})
    assert (again.agent_session_id, again.title, again.agent_status) == ("a1", "Über", "thinking")
    await say(store, "m1")
    assert [row.channel for row in await store.threads.channels(THREAD)] == ["default", "side"]


async def test_a_deleted_thread_is_gone_for_everybody_and_its_key_is_free(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    await a_turn(store, lease)
    await say(store, "queued")
    await store.thread_requests.put(THREAD, id="r1", kind="abort", data={})
    await store.threads.delete(lease)
    for call in [store.threads.get(THREAD), say(store, "late"), say(store, "queued"), store.threads.touch(THREAD)]:
        with pytest.raises(ThreadNotFound):
            await call
    assert (await store.threads.page(limit=10)).rows == []
    assert await store.leases.abandoned(limit=10) == []
    assert (await store.messages.get(THREAD, "queued")).status == MessageStatus.CANCELED
    assert (await store.turns.get("trn_1")).state == TurnState.ENDED
    assert (await store.thread_requests.get("r1")).result == {
        "error": {"code": "thread_not_found", "message": "the thread was deleted"}
    }
    new, made = await store.threads.get_or_create(id="thr_new", owner="root", key="slack:T1:1", agent="fake")
    assert made
    assert new.id == "thr_new"


async def test_a_deleted_thread_is_for_the_host_of_its_sandbox(store: Store) -> None:
    for number, node in ((1, "node-a"), (2, "node-b"), (3, None)):
        await a_thread(store, number)
        lease = await a_lease(store, number)
        session = a_row(number, node=node) if node else a_row(9)
        if node is not None:
            await store.sessions.insert(session, max_live=None)
        await store.threads.set_session(lease, session.id)
        await store.threads.delete(lease)
        await store.leases.release(lease)
    assert _ids(await store.threads.deleted(limit=10)) == ["thr_0001", "thr_0002", "thr_0003"]
    assert _ids(await store.threads.deleted(limit=10, node="node-b")) == ["thr_0002", "thr_0003"]


async def test_what_a_sandbox_was_given_goes_with_it(store: Store) -> None:
    lease = await leased(store)
    await store.threads.set_session(lease, "ses_1")
    given = {"session_id": "ses_1", "workdir": "/workspace/x"}
    assert (await store.threads.change(lease, {"workspace": given})).workspace == given
    assert (await store.threads.set_session(lease, "ses_1")).workspace == given
    assert (await store.threads.set_session(lease, "ses_2")).workspace is None
    await store.threads.change(lease, {"workspace": given})
    assert (await store.threads.set_session(lease, None)).workspace is None


async def test_a_deleted_thread_stays_until_its_sandbox_is_gone(store: Store) -> None:
    lease = await leased(store)
    await a_thread(store, 2)
    await store.threads.set_session(lease, "ses_1")
    await a_turn(store, lease)
    file = ThreadFileRow(
        id="f1", thread_id=THREAD, kind=FileKind.ARTIFACT, name="a.txt", size=1, sha256="0", path="aa/f1"
    )
    await store.thread_files.add(file)
    await store.threads.delete(lease)
    assert await store.threads.deleted(limit=10) == []  # leased: its holder is at it
    await store.leases.release(lease)
    assert _ids(await store.threads.deleted(limit=10)) == [THREAD]
    assert await store.threads.purge(older_than=0) == []
    successor = await a_lease(store, owner="daemon-b")
    await store.threads.set_session(successor, None)
    await store.leases.release(successor)
    assert await store.threads.purge(older_than=3600) == []
    assert await store.threads.purge(older_than=0) == ["aa/f1"]
    assert await store.thread_files.of_thread(THREAD) == []
    assert await store.turns.page(THREAD, limit=10) == []
    assert (await store.messages.page(THREAD, limit=10)).rows == []
    assert await store.threads.channels(THREAD) == []
    with pytest.raises(ThreadNotFound):
        await store.threads.change(successor, {"agent": "x"})
    assert (await store.threads.get("thr_0002")).id == "thr_0002"


async def test_a_released_lease_writes_no_more(store: Store) -> None:
    lease = await leased(store)
    await store.leases.release(lease)
    with pytest.raises(StaleRow, match="leased by nobody, generation 1; stop working on it"):
        await store.threads.change(lease, {"agent": "x"})


async def test_what_is_revised_is_the_row_as_it_is(store: Store) -> None:
    """Of many at once, each adds to what the others have written."""
    lease = await leased(store)

    async def add(name: str) -> None:
        def revised(row: ThreadRow) -> ThreadChange:
            return {"settings": {**row.settings, name: True}}

        await store.threads.revise(lease, revised)

    boundary = store.threads.start_over(lease, "default", events=[TurnEvent(Kind.NEW_SESSION, {})])
    names = [f"option-{number}" for number in range(8)]
    await asyncio.gather(*map(add, names[:4]), boundary, *map(add, names[4:]))
    row = await store.threads.get(THREAD)
    assert set(row.settings) == {*names, "fresh_after"}
    assert fresh_after(row, "default") == 1


async def test_another_agent_knows_no_session_of_the_former(store: Store) -> None:
    lease = await leased(store)
    for channel in ("default", "other"):
        await store.threads.change_channel(lease, channel, {"agent_session_id": "s1"})
    await store.threads.revise(lease, lambda row: {"settings": {"x": 1}, "agent": row.agent})
    assert [one.agent_session_id for one in await store.threads.channels(THREAD)] == ["s1", "s1"]
    assert (await store.threads.revise(lease, lambda _row: {"agent": "another"})).agent == "another"
    assert [one.agent_session_id for one in await store.threads.channels(THREAD)] == [None, None]


async def test_moments_of_a_threads_sandbox(store: Store) -> None:
    lease = await leased(store)

    async def moments() -> tuple[bool, bool, bool]:
        row = await store.threads.get(THREAD)
        return row.healthy_at is not None, row.resumed_at is not None, row.destroyed_at is not None

    def told(how: str) -> list[TurnEvent]:
        return [TurnEvent(Kind.RESOLVED, {"how": how, "why": None, "session_id": "ses_1"})]

    assert await moments() == (False, False, False)
    await store.threads.set_session(lease, "ses_1", events=told("created"))
    assert await moments() == (True, False, False)
    await store.threads.set_session(lease, "ses_1")
    assert await moments() == (True, False, False)
    await store.threads.change(lease, {"sleep_state": SleepState.AWAKE}, events=told("resumed"))
    assert await moments() == (True, True, False)
    await store.threads.set_session(lease, "ses_2", events=told("recreated"))
    assert await moments() == (True, True, True)
    first = await store.threads.get(THREAD)
    turn = await a_turn(store, lease)
    await store.turns.note(lease, turn.id, attempt=True)
    second = await store.threads.get(THREAD)
    assert (second.healthy_at or 0) > (first.healthy_at or 0)
    assert (second.resumed_at, second.destroyed_at) == (first.resumed_at, first.destroyed_at)
    await store.threads.set_session(lease, None)
    assert ((await store.threads.get(THREAD)).destroyed_at or 0) > (first.destroyed_at or 0)
