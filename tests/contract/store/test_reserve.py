"""The reserve of an SQLite database on a disk that is full to the last byte."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from holdfast.errors import DiskFull
from holdfast.store import Store, reserve_for, spending
from holdfast.store.database.reserve import PIECE, Reserve
from support.machine.full_disk import SmallDisk, small_disk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[SmallDisk]:
    with small_disk(tmp_path / "small", "16m") as disk:
        yield disk


async def test_only_who_makes_room_may_spend_it(disk: SmallDisk) -> None:
    database = disk.path / "test.db"
    url = f"sqlite:///{database}"
    reserve = reserve_for(url, 2 * PIECE)
    assert reserve is not None and reserve.refill()
    store = await Store.open(url, reserve=reserve)
    try:
        disk.fill_around(database)
        with pytest.raises(DiskFull):
            await write(store)
        assert size(database) == 2 * PIECE
        with spending():
            await write(store)
        assert size(database) == PIECE
        assert not reserve.refill()
        disk.free()
        assert reserve.refill()
        assert size(database) == 2 * PIECE
    finally:
        await store.close()


async def test_it_ends(disk: SmallDisk) -> None:
    database = disk.path / "test.db"
    reserve = Reserve(database.with_name("r"), PIECE)
    store = await Store.open(f"sqlite:///{database}", reserve=reserve)
    try:
        assert reserve.refill()
        disk.fill_around(database)
        with pytest.raises(DiskFull), spending():
            for _ in range(100):
                await write(store, 100_000)
        assert not reserve.give()
    finally:
        disk.free()
        await store.close()


async def test_a_daemon_that_starts_on_a_full_disk(disk: SmallDisk) -> None:
    reserve = Reserve(disk.path / "r", 2 * PIECE)
    reserve.give_if_full()
    assert reserve.refill()
    reserve.give_if_full(PIECE)
    assert (disk.path / "r").stat().st_size == 2 * PIECE
    disk.fill()
    reserve.give_if_full(PIECE)
    assert (disk.path / "r").stat().st_size == PIECE
    (disk.path / "now").write_bytes(b"x" * 4096)


def test_a_database_elsewhere_has_none() -> None:
    assert reserve_for("postgresql://somewhere/db", PIECE) is None
    assert reserve_for("sqlite:////tmp/x.db", 0) is None


def size(database: Path) -> int:
    return database.with_name("test.db.reserve").stat().st_size


async def write(store: Store, count: int = 20_000) -> None:
    def work(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS heap (x BLOB)")
        connection.exec_driver_sql(f"INSERT INTO heap VALUES (zeroblob({count}))")

    await store._database.write(work)
