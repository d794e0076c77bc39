"""Snapshots, forks and workspaces by the clients, against the real API."""

import pytest

from holdfast import errors
from holdfast.sdk import Client, SyncClient
from support.api_host import ApiHost

pytestmark = pytest.mark.anyio


async def test_snapshots_and_forks(client: Client) -> None:
    session = await client.create_session(metadata={"a": "b"})
    snapshot = await session.snapshot("base")
    assert (snapshot.name, snapshot.kind, snapshot.limits.pids) == ("base", "files", 256)
    assert await client.snapshots.list() == [snapshot]
    assert await client.snapshots.get("base") == snapshot
    async with client.create_session(snapshot="base") as started:
        assert started.info.snapshot_id == snapshot.id
    copy = await session.fork(metadata={}, ttl_seconds=7)
    assert (copy.info.forked_from, copy.info.restored, copy.info.ttl_seconds) == (session.id, "files", 7)
    assert copy.info.metadata == {}
    assert (await session.fork()).info.metadata == {"a": "b"}
    await client.snapshots.remove("base")
    with pytest.raises(errors.SnapshotNotFound):
        await client.snapshots.get("base")


async def test_workspaces(client: Client) -> None:
    async with client.create_session(workspace="home") as session:
        assert session.info.workspace == "home"
        [held] = await client.workspaces.list()
        assert (held.name, held.session_id) == ("home", session.id)
        with pytest.raises(errors.Conflict, match=session.id):
            await client.workspaces.remove("home")
    await client.workspaces.remove("home")
    with pytest.raises(errors.WorkspaceNotFound):
        await client.workspaces.remove("home")


def test_the_same_without_async(api: ApiHost) -> None:
    with SyncClient(api.url, api.key) as client, client.create_session(workspace="home") as session:
        assert session.snapshot("base") == client.snapshots.get("base")
        with session.fork() as copy:
            assert copy.info.forked_from == session.id
        assert session.restore() is None
        assert [one.name for one in client.workspaces.list()] == ["home"]
        client.snapshots.remove("base")
        assert client.snapshots.list() == []
