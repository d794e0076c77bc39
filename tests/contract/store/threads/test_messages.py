"""Messages: stored once, in order, taken back while they wait."""

import pytest

from contract.store.threads.talk import THREAD, a_thread, a_turn, finalize, leased, say
from holdfast.errors import FileMissing, IdempotencyMismatch, NotFound, WrongState
from holdfast.records.threads import FileKind, MessageStatus, Mode, NewMessage, ThreadFileRow
from holdfast.store import Store
from holdfast.store.pages import PAGE_BYTES
from holdfast.vocabulary.turn_events import Kind, StopReason

pytestmark = pytest.mark.anyio


async def test_what_is_stored_is_what_was_said(store: Store) -> None:
    made = await a_thread(store)
    message = NewMessage(id="1.5", text="grüße 🐙", channel="side", author="ada", model="big", mode=Mode.COLLECT)
    put = await store.messages.put(THREAD, message)
    assert put.new
    row = await store.messages.get(THREAD, "1.5")
    assert row == put.message
    assert (row.text, row.channel, row.author, row.model, row.mode) == ("grüße 🐙", "side", "ada", "big", "collect")
    assert (row.status, row.turn_id, row.seq, row.attachments) == (MessageStatus.QUEUED, None, None, ())
    assert put.thread == await store.threads.get(THREAD)
    assert put.thread.last_activity_at > made.last_activity_at


async def test_the_same_id_is_the_same_message_whatever_became_of_it(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await store.turns.end(lease, "trn_1", finalize())
    before = await store.threads.get(THREAD)
    again = await store.messages.put(THREAD, NewMessage(id="msg-trn_1", text="hello"))
    assert (again.new, again.message.status) == (False, MessageStatus.DONE)
    assert await store.threads.get(THREAD) == before  # not even activity
    assert await store.messages.queued(THREAD) == []


@pytest.mark.parametrize(
    "other",
    [
        NewMessage(id="m", text="b"),
        NewMessage(id="m", text="a", channel="side"),
        NewMessage(id="m", text="a", author="eve"),
        NewMessage(id="m", text="a", model="x"),
        NewMessage(id="m", text="a", mode=Mode.STEER),
        NewMessage(id="m", text="a", attachments=["f1"]),
    ],
    ids=["text", "channel", "author", "model", "mode", "attachments"],
)
async def test_the_same_id_with_another_content_is_refused(store: Store, other: NewMessage) -> None:
    await a_thread(store)
    await say(store, "m", "a")
    with pytest.raises(IdempotencyMismatch, match="message m is there already"):
        await store.messages.put(THREAD, other)
    assert (await store.messages.get(THREAD, "m")).text == "a"


async def test_ids_are_the_threads_own(store: Store) -> None:
    await a_thread(store, 1)
    await a_thread(store, 2)
    await say(store, "m", "one")
    await say(store, "m", "two", thread="thr_0002")
    assert (await store.messages.get("thr_0002", "m")).text == "two"
    with pytest.raises(NotFound, match="no message x in thread thr_0001"):
        await store.messages.get(THREAD, "x")


async def test_the_queue_is_in_the_order_of_arrival(store: Store) -> None:
    await a_thread(store)
    for id, channel in [("z", "default"), ("a", "side"), ("m", "default")]:
        await say(store, id, channel=channel)
    assert [row.id for row in await store.messages.queued(THREAD)] == ["z", "a", "m"]
    assert [row.id for row in await store.messages.queued(THREAD, "default")] == ["z", "m"]
    first = await store.messages.page(THREAD, limit=2)
    rest = await store.messages.page(THREAD, limit=2, after=first.rows[-1].position)
    assert [row.id for row in [*first.rows, *rest.rows]] == ["z", "a", "m"]
    assert (first.more, rest.more) == (True, False)
    aside = await store.messages.page(THREAD, limit=9, channel="side")
    assert ([row.id for row in aside.rows], aside.more) == (["a"], False)
    done = await store.messages.page(THREAD, limit=9, statuses=[MessageStatus.DONE])
    assert (done.rows, done.more) == ([], False)


async def test_a_page_of_long_messages_ends_early_and_is_never_empty(store: Store) -> None:
    await a_thread(store)
    for id, size in [("a", 10), ("b", PAGE_BYTES), ("c", PAGE_BYTES + 1), ("d", 10)]:
        await say(store, id, "t" * size)
    after, pages = 0, []
    while True:
        page = await store.messages.page(THREAD, limit=100, after=after)
        pages.append([row.id for row in page.rows])
        if not page.more:
            break
        after = page.rows[-1].position
    assert pages == [["a", "b"], ["c"], ["d"]]


async def test_an_upload_is_attached_once_it_is_there(store: Store) -> None:
    lease = await leased(store)
    await a_thread(store, 2)
    message = NewMessage(id="m", text="see", attachments=["f1"])
    with pytest.raises(FileMissing, match="no such upload in thread thr_0001: f1; upload it first"):
        await store.messages.put(THREAD, message)
    with pytest.raises(NotFound):  # nothing of it is stored
        await store.messages.get(THREAD, "m")
    await store.thread_files.add(_upload("f1"))
    await store.thread_files.add(_upload("f2"))
    theirs = NewMessage(id="m", text="see", attachments=["f2"])
    with pytest.raises(FileMissing):  # somebody else's
        await store.messages.put("thr_0002", theirs)
    await store.messages.put(THREAD, message)
    assert await store.thread_files.remove_unused(older_than=0) == ["uploads/f2"]
    assert (await store.thread_files.get(THREAD, "f1")).turn_id is None
    turn = await store.turns.begin(lease, "default", "trn_1")
    assert turn is not None
    assert list(turn.attachments) == ["f1"]
    assert (await store.thread_files.get(THREAD, "f1")).turn_id == "trn_1"


def _upload(id: str) -> ThreadFileRow:
    kind = FileKind.UPLOAD
    return ThreadFileRow(id=id, thread_id=THREAD, kind=kind, name="a.txt", size=3, sha256="ab", path=f"uploads/{id}")


async def test_what_waits_can_be_taken_back(store: Store) -> None:
    lease = await leased(store)
    turn = await a_turn(store, lease)
    for id in ["m1", "m2", "m3"]:
        await say(store, id, channel="side" if id == "m3" else "default")
    assert (await store.messages.cancel(THREAD, "m1")).status == MessageStatus.CANCELED
    assert (await store.messages.cancel(THREAD, "m1")).status == MessageStatus.CANCELED
    assert [row.id for row in await store.messages.cancel_queued(THREAD, "side")] == ["m3"]
    assert [row.id for row in await store.messages.cancel_queued(THREAD)] == ["m2"]
    told = (await store.thread_events.page(THREAD, after=turn.last_seq, limit=10)).events
    assert [(event.kind, event.channel, event.data["message_id"]) for event in told] == [
        (Kind.MESSAGE_CANCELED, "default", "m1"),
        (Kind.MESSAGE_CANCELED, "side", "m3"),
        (Kind.MESSAGE_CANCELED, "default", "m2"),
    ]
    with pytest.raises(WrongState, match="message msg-trn_1 is in_turn and cannot be taken back; abort its turn"):
        await store.messages.cancel(THREAD, "msg-trn_1")
    with pytest.raises(NotFound):
        await store.messages.cancel(THREAD, "m9")
    await store.turns.end(lease, turn.id, finalize(StopReason.CANCELED))
    assert await store.turns.begin(lease, "default", "trn_2") is None
