"""Keys through the client, async and not."""

import pytest

from holdfast import errors
from holdfast.sdk import Client, SyncClient
from support.api_host import ApiHost

pytestmark = pytest.mark.anyio


async def test_keys(client: Client, api: ApiHost) -> None:
    made = await client.keys.add("ada", "use", max_sessions=1)
    assert made.key.startswith("hf_")
    assert made.key not in repr(made)
    assert (made.info.name, made.info.scope, made.info.owner, made.info.max_sessions) == ("ada", "use", "ada", 1)
    assert await client.keys.list() == [made.info]
    async with Client(api.url, made.key, retries=0) as ada:
        session = await ada.create_session()
        assert session.info.owner == "ada"
        with pytest.raises(errors.TooManySessions):
            await ada.create_session()
        with pytest.raises(errors.Forbidden, match="needs a key with scope admin; the key ada has scope use"):
            await ada.keys.list()
        await client.keys.remove("ada")
        with pytest.raises(errors.Unauthorized):
            await session.exec("true")
    assert (await client.get_session(session.id)).info.owner == "ada"
    with pytest.raises(errors.KeyNotFound):
        await client.keys.remove("ada")
    with pytest.raises(errors.BadInput, match="scope"):
        await client.keys.add("bob", "everything")


async def test_ceilings_of_a_key(client: Client) -> None:
    made = await client.keys.add("ada", "use", max_cpus=0.5, max_memory_mb=256, max_pids=64, max_disk_mb=512)
    info = made.info
    assert (info.max_cpus, info.max_memory_mb, info.max_pids, info.max_disk_mb) == (0.5, 256, 64, 512)
    assert await client.keys.list() == [info]
    with pytest.raises(errors.BadInput, match="max_pids"):
        await client.keys.add("bob", "use", max_pids=0)


def test_keys_without_async(api: ApiHost) -> None:
    with SyncClient(api.url, api.key) as client:
        made = client.keys.add("watcher", "read", owner="ada")
        assert client.keys.list() == [made.info]
        with SyncClient(api.url, made.key) as watcher:
            assert watcher.list_sessions() == []
        [used] = client.keys.list()
        assert used.last_used_at is not None
        client.keys.remove("watcher")
        assert client.keys.list() == []
