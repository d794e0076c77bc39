"""Threads to test with: made, leased, spoken to."""

from holdfast.records.threads import Lease, NewMessage, ThreadRow, TurnRow
from holdfast.store import Store
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

THREAD = "thr_0001"


async def a_thread(store: Store, number: int = 1, *, owner: str = "root", key: str | None = None) -> ThreadRow:
    """Thread ``number``: ids sort as the numbers do."""
    id = f"thr_{number:04}"
    row, new = await store.threads.get_or_create(id=id, owner=owner, key=key or f"slack:T1:{number}", agent="fake")
    assert new
    return row


async def a_lease(store: Store, number: int = 1, *, owner: str = "daemon-a", ttl: float = 60) -> Lease:
    return (await store.leases.take(f"thr_{number:04}", owner=owner, ttl=ttl)).lease


async def leased(store: Store) -> Lease:
    """The lease of a new thread."""
    await a_thread(store)
    return await a_lease(store)


async def say(store: Store, id: str, text: str = "hello", *, thread: str = THREAD, **fields: object) -> None:
    await store.messages.put(thread, NewMessage(id=id, text=text, **fields))  # type: ignore[arg-type]  # any of its fields


async def a_turn(
    store: Store, lease: Lease, id: str = "trn_1", text: str = "hello", *, channel: str = "default"
) -> TurnRow:
    """A message, and the turn that takes it up."""
    await say(store, f"msg-{id}", text, thread=lease.thread_id, channel=channel)
    turn = await store.turns.begin(lease, channel, id)
    assert turn is not None
    return turn


def delta(text: str, part: str = "p1", *, thought: bool = False) -> TurnEvent:
    more = {"thought": True} if thought else {}
    return TurnEvent(Kind.TEXT_DELTA, {"message_id": "agent-1", "part_id": part, "text": text, **more})


def finalize(reason: StopReason = StopReason.END_TURN, **more: object) -> TurnEvent:
    return TurnEvent(Kind.FINALIZE, {"message_id": "agent-1", "reason": reason.value, **more})


async def kinds(store: Store, thread: str = THREAD) -> list[str]:
    """What was told so far; and the numbers have no holes."""
    page = await store.thread_events.page(thread, after=0, limit=100_000)
    assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
    assert page.newest == len(page.events)
    return [event.kind for event in page.events]
