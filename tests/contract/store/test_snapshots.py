"""Rows of snapshots: names, idempotency keys, limits, and that nobody loses one that is being used."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from contract.store.rows import NODE, NOW, a_row
from holdfast.errors import Conflict, IdempotencyMismatch, SnapshotNotFound, TooManySnapshots
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.events import NewEvent
from holdfast.records.machine import Status
from holdfast.records.spec import SnapshotKind
from holdfast.store import Store

pytestmark = pytest.mark.anyio

_ROW = SnapshotRow(
    id="snp_0001",
    name="base",
    owner="ada",
    status=SnapshotStatus.WRITING,
    kind=SnapshotKind.FILES,
    session_id="ses_0001",
    image="host",
    node=NODE,
    driver="fake",
    spec=a_row().spec,
    created_at=NOW,
)


def a_snapshot(number: int = 1, **changes: Any) -> SnapshotRow:
    return replace(_ROW, **{"id": f"snp_{number:04}", "name": f"name{number}"} | changes)


async def made(store: Store, number: int = 1, **changes: Any) -> SnapshotRow:
    row = a_snapshot(number, **changes)
    await store.snapshots.insert(row, max_owned=None)
    return await store.snapshots.finish(row.id, kind="files", size_bytes=7 << 40, now=NOW, notes=[])


async def test_from_writing_to_gone(store: Store) -> None:
    row = a_snapshot()
    assert await store.snapshots.insert(row, max_owned=1) == (row, True)
    note = NewEvent("snapshot", "ses_0001", {"name": "base"}, "ada")
    ready = await store.snapshots.finish(row.id, kind="memory", size_bytes=7 << 40, now=NOW, notes=[note])
    assert ready == replace(row, status=SnapshotStatus.READY, kind=SnapshotKind.MEMORY, size_bytes=7 << 40)
    assert [(one.kind, one.owner) for one in (await store.events.page(after=None, limit=9)).events] == [
        ("snapshot", "ada")
    ]
    with pytest.raises(SnapshotNotFound):  # it is not being written any more
        await store.snapshots.finish(row.id, kind="files", size_bytes=1, now=NOW, notes=[note])
    assert (await store.events.page(after=None, limit=9)).newest == 1
    await store.snapshots.remove(row.id)  # only one that is being removed
    assert await store.snapshots.get(row.id, owner="ada") == ready
    await store.snapshots.begin_removal(row.id)
    await store.snapshots.remove(row.id)
    await store.snapshots.remove(row.id)
    with pytest.raises(SnapshotNotFound, match="no snapshot snp_0001"):
        await store.snapshots.begin_removal(row.id)


async def test_names_belong_to_owners(store: Store) -> None:
    await made(store, 1, name="base")
    with pytest.raises(Conflict, match="snapshot base already"):
        await store.snapshots.insert(a_snapshot(2, name="base"), max_owned=None)
    bobs = await made(store, 3, name="base", owner="bob")
    assert (await store.snapshots.get("base", owner="bob")) == bobs
    assert (await store.snapshots.get("base", owner="ada")).id == "snp_0001"
    with pytest.raises(SnapshotNotFound):
        await store.snapshots.get("snp_0003", owner="ada")
    assert (await store.snapshots.get("snp_0003", owner="ada", everybodys=True)) == bobs
    assert [row.id for row in await store.snapshots.all()] == ["snp_0003", "snp_0001"]
    assert [row.id for row in await store.snapshots.all(owner="ada", node=NODE)] == ["snp_0001"]
    assert await store.snapshots.all(node="another") == []
    await store.snapshots.begin_removal("snp_0001")
    with pytest.raises(Conflict, match="being removed"):
        await store.snapshots.insert(a_snapshot(4, name="base"), max_owned=None)


async def test_the_same_key_gives_the_same_snapshot(store: Store) -> None:
    row = a_snapshot(1, idempotency_key="k", idempotency_hash="h")
    await store.snapshots.insert(row, max_owned=1)
    again = a_snapshot(2, idempotency_key="k", idempotency_hash="h")
    assert await store.snapshots.insert(again, max_owned=1) == (row, False)
    with pytest.raises(IdempotencyMismatch, match="snp_0001"):
        await store.snapshots.insert(replace(again, idempotency_hash="other"), max_owned=1)


async def test_the_limit_holds_for_all_at_once(store: Store) -> None:
    calls = [store.snapshots.insert(a_snapshot(n), max_owned=3) for n in range(9)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, TooManySnapshots) for one in outcomes) == 6
    await store.snapshots.insert(a_snapshot(20, owner="bob"), max_owned=3)


async def test_one_that_a_session_is_being_made_from_stays(store: Store) -> None:
    row = await made(store)
    await store.sessions.insert(a_row(1, status="creating", snapshot_id=row.id), max_live=None)
    with pytest.raises(Conflict, match="session ses_0001 is being made from it"):
        await store.snapshots.begin_removal(row.id)
    await store.sessions.change(
        "ses_0001", statuses=["creating"], generation=None, now=NOW, values={"status": Status.ACTIVE}
    )
    await store.snapshots.begin_removal(row.id)
    with pytest.raises(SnapshotNotFound):
        await store.sessions.insert(a_row(2, status="creating", snapshot_id=row.id), max_live=None)
    with pytest.raises(SnapshotNotFound):
        await store.sessions.insert(a_row(3, status="creating", snapshot_id="snp_none"), max_live=None)
    assert [one.id for one in await store.sessions.page(statuses=None, limit=9, after=None)] == ["ses_0001"]


async def test_either_the_session_or_the_removal_wins(url: str, store: Store) -> None:
    other = await Store.open(url)
    for number in range(1, 11):
        row = await made(store, number)
        session = a_row(number, status="creating", snapshot_id=row.id)
        outcomes = await asyncio.gather(
            store.sessions.insert(session, max_live=None),
            other.snapshots.begin_removal(row.id),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Exception) for one in outcomes) == 1, outcomes
    await other.close()


async def test_an_image_of_a_snapshot_is_in_use(store: Store) -> None:
    await made(store, 1, image="of-a-snapshot")
    await store.sessions.insert(a_row(1, image="of-a-session"), max_live=None)
    assert await store.sessions.referenced_images(node=NODE) == {"of-a-snapshot", "of-a-session"}
    assert await store.sessions.referenced_images(node="another") == set()
