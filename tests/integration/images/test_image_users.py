"""An image that is in use is not removed, and who uses it is named."""

from pathlib import Path

import pytest

from contract.store.rows import NODE, a_row
from contract.store.threads.talk import a_lease, a_thread
from holdfast.daemon.wiring.image_users import describe_users
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.machine import Status
from holdfast.records.spec import SnapshotKind
from holdfast.store import Store

pytestmark = pytest.mark.anyio


async def test_sessions_threads_and_snapshots_are_named(tmp_path: Path) -> None:
    store = await Store.open(f"sqlite:///{tmp_path / 'holdfast.db'}")
    try:
        assert "try again" in await describe_users(store, NODE, "mine:1")
        rows = [a_row(1, image="mine:1"), a_row(2, image="mine:1"), a_row(3), a_row(4, image="mine:1", node="other")]
        for row in (*rows, a_row(5, image="mine:1", status=Status.DESTROYED)):
            await store.sessions.insert(row, max_live=100)
        await a_thread(store, key="slack:T1:C1:1")
        await store.threads.set_session(await a_lease(store), "ses_0002")
        told = await describe_users(store, NODE, "mine:1")
        one, two = "the session ses_0001", "the sandbox ses_0002 of the thread slack:T1:C1:1"
        assert told == f"image 'mine:1' is used by {one}, {two}; remove them first"
        of_three = rows[2]
        snapshot = SnapshotRow(
            id="snp_1",
            name="before",
            owner="root",
            status=SnapshotStatus.READY,
            kind=SnapshotKind.FILES,
            session_id=of_three.id,
            image="kept",
            node=NODE,
            driver="fake",
            spec=of_three.spec,
            created_at=of_three.created_at,
        )
        await store.snapshots.insert(snapshot, max_owned=None)
        assert "is used by the snapshot before; remove it first" in await describe_users(store, NODE, "kept:latest")
        for number in range(10, 20):
            await store.sessions.insert(a_row(number, image="many"), max_live=100)
        assert " and 5 more; " in await describe_users(store, NODE, "many")
    finally:
        await store.close()
