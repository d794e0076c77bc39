"""Files of threads, requests to the holder of a lease, and nodes."""

import pytest

from contract.store.threads.talk import THREAD, a_thread, leased
from holdfast.errors import FileMissing, NotFound, ThreadNotFound
from holdfast.records.threads import FileKind, ThreadFileRow
from holdfast.store import Store

pytestmark = pytest.mark.anyio


def _file(id: str, kind: FileKind = FileKind.ARTIFACT, turn_id: str | None = "trn_1") -> ThreadFileRow:
    return ThreadFileRow(
        id=id, thread_id=THREAD, kind=kind, name="plot \0.png", size=2**40, sha256="ab", path=f"p/{id}", turn_id=turn_id
    )


async def test_files_are_found_in_their_thread_only(store: Store) -> None:
    with pytest.raises(ThreadNotFound):
        await store.thread_files.add(_file("f1"))
    await a_thread(store)
    await a_thread(store, 2)
    added = await store.thread_files.add(_file("f1"))
    assert added.created_at > 0
    assert await store.thread_files.add(_file("f1", FileKind.UPLOAD)) == await store.thread_files.get(THREAD, "f1")
    assert (await store.thread_files.get(THREAD, "f1")).size == 2**40
    with pytest.raises(FileMissing):
        await store.thread_files.get("thr_0002", "f1")
    await store.thread_files.add(_file("f2", FileKind.UPLOAD, None))
    assert [file.id for file in await store.thread_files.of_thread(THREAD)] == ["f1", "f2"]
    assert [file.id for file in await store.thread_files.of_thread(THREAD, kind=FileKind.UPLOAD)] == ["f2"]
    assert [file.id for file in await store.thread_files.some(THREAD, ["f2", "nope", "f1"])] == ["f2", "f1"]
    assert await store.thread_files.some("thr_0002", ["f1"]) == []


async def test_only_old_uploads_that_nobody_named_are_removed(store: Store) -> None:
    await a_thread(store)
    await store.thread_files.add(_file("artifact"))
    await store.thread_files.add(_file("upload", FileKind.UPLOAD, None))
    assert await store.thread_files.remove_unused(older_than=3600) == []
    assert await store.thread_files.remove_unused(older_than=0) == ["p/upload"]
    assert [file.id for file in await store.thread_files.of_thread(THREAD)] == ["artifact"]


async def test_a_request_is_stored_once_and_done_once(store: Store) -> None:
    lease = await leased(store)
    put, thread = await store.thread_requests.put(THREAD, id="r1", kind="answer", data={"question_id": "q", "n": [1]})
    assert thread.lease_owner == "daemon-a"
    again, _ = await store.thread_requests.put(THREAD, id="r1", kind="answer", data={"other": True})
    assert again == put == await store.thread_requests.get("r1")
    await store.thread_requests.put(THREAD, id="r0", kind="abort", data={})
    assert [request.id for request in await store.thread_requests.open(THREAD)] == ["r1", "r0"]
    done = await store.thread_requests.finish(lease, "r1", {"ok": True})
    assert (done.result, done.data) == ({"ok": True}, {"question_id": "q", "n": [1]})
    assert await store.thread_requests.finish(lease, "r1", {"ok": False}) == done
    assert [request.id for request in await store.thread_requests.open(THREAD)] == ["r0"]
    with pytest.raises(NotFound):
        await store.thread_requests.finish(lease, "r9", {})


async def test_a_node_is_dead_when_it_is_silent(store: Store) -> None:
    first = await store.nodes.heartbeat("node-a", started=True)
    again = await store.nodes.heartbeat("node-a")
    assert again.started_at == first.started_at
    assert again.heartbeat_at > first.heartbeat_at
    assert (await store.nodes.heartbeat("node-a", started=True)).started_at > first.started_at
    await store.nodes.heartbeat("node-b")
    assert [node.id for node in await store.nodes.all()] == ["node-a", "node-b"]
    assert await store.nodes.dead(silent_for=3600) == []
    assert [node.id for node in await store.nodes.dead(silent_for=-1)] == ["node-a", "node-b"]
    assert not await store.nodes.forget("node-a", silent_for=3600)
    assert await store.nodes.forget("node-a", silent_for=-1)
    assert [node.id for node in await store.nodes.all()] == ["node-b"]


async def test_requests_that_are_done_are_forgotten_after_a_while(store: Store) -> None:
    await a_thread(store)
    lease = (await store.leases.take(THREAD, owner="n1", ttl=60)).lease
    for name in ("open", "done"):
        await store.thread_requests.put(THREAD, id=name, kind="diff", data={})
    await store.thread_requests.finish(lease, "done", {"text": "x" * 1000})
    assert await store.thread_requests.forget(older_than=3600) == 0
    assert await store.thread_requests.forget(older_than=-1) == 1
    assert [row.id for row in await store.thread_requests.open(THREAD)] == ["open"]
    with pytest.raises(NotFound):
        await store.thread_requests.get("done")
