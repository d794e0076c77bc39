"""The queries of the key store."""

from dataclasses import fields, replace

import pytest

from contract.store.rows import NOW
from holdfast.errors import Conflict, KeyNotFound
from holdfast.records.keys import KeyRow
from holdfast.store import Store
from holdfast.store.tables import keys as table

pytestmark = pytest.mark.anyio

ADA = KeyRow(id="key_1", name="ada", scope="use", owner="ada", hash="aa", max_sessions=3, created_at=NOW)
BOB = KeyRow(
    id="key_2",
    name="Bob",
    scope="read",
    owner="ada",
    hash="bb",
    created_at=NOW + 1,
    max_cpus=0.5,
    max_memory_mb=1 << 40,
    max_pids=64,
    max_disk_mb=512,
)


def test_a_row_has_the_columns_of_the_table() -> None:
    assert [field.name for field in fields(KeyRow)] == [column.name for column in table.columns]


async def test_keys_come_back_by_name_and_go(store: Store) -> None:
    assert await store.keys.all() == []
    for row in (ADA, BOB):
        await store.keys.add(row)
    assert await store.keys.all() == [BOB, ADA]  # by byte in both databases
    assert await store.keys.remove("ada") == ADA
    with pytest.raises(KeyNotFound, match="there is no key ada"):
        await store.keys.remove("ada")
    assert await store.keys.all() == [BOB]


async def test_a_name_and_a_hash_are_there_once(store: Store) -> None:
    await store.keys.add(ADA)
    with pytest.raises(Conflict, match="there is a key ada already"):
        await store.keys.add(replace(ADA, id="key_9", hash="99"))
    with pytest.raises(Conflict):
        await store.keys.add(replace(BOB, hash="aa"))
    assert await store.keys.all() == [ADA]


async def test_last_use_is_noted_and_never_goes_back(store: Store) -> None:
    for row in (ADA, BOB):
        await store.keys.add(row)
    await store.keys.note_use([])
    await store.keys.note_use([("key_2", NOW + 5), ("key_1", NOW + 7), ("key_gone", NOW)])
    await store.keys.note_use([("key_1", NOW + 6)])
    assert {row.name: row.last_used_at for row in await store.keys.all()} == {"ada": NOW + 7, "Bob": NOW + 5}
