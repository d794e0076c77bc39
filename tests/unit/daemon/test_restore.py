"""Where a backup may be restored to, and what is no backup."""

import asyncio
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import IO

import pytest
from pydantic import SecretStr

from holdfast.daemon.backup import Manifest, copy_database
from holdfast.daemon.config.config import Config
from holdfast.daemon.restore import refuse_half, restore
from holdfast.errors import ConfigError, Conflict, HoldfastError

pytestmark = pytest.mark.anyio


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of a daemon without any session."""
    source = tmp_path / "backup"
    for name in ("sessions", "snapshots", "workspaces"):
        (source / name).mkdir(parents=True)
    (source / "node_id").write_text("node_1")
    sqlite3.connect(source / "holdfast.db").close()
    Manifest("node_1", "fake", "sqlite", 1.0).write(source)
    return source


async def test_to_an_empty_directory_and_to_no_other(backup: Path, tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path / "state", driver="fake")
    await restore(config, backup)
    refuse_half(config.state_dir)
    assert (config.state_dir / "node_id").read_text() == "node_1"
    assert (config.state_dir / "holdfast.db").stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="not empty"):
        await restore(config, backup)


async def test_nobody_else_can_open_a_secret_while_it_is_copied(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    copy = shutil.copyfileobj

    def watched(read: IO[bytes], write: IO[bytes], length: int = 0) -> None:
        modes.append(os.fstat(write.fileno()).st_mode & 0o777)
        copy(read, write, length)

    monkeypatch.setattr(shutil, "copyfileobj", watched)
    before = os.umask(0)
    try:
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600], "node_id and the database"


async def test_what_does_not_fit_together(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="driver fake"):
        await restore(Config(state_dir=tmp_path / "state", driver="process"), backup)
    postgres = Config(state_dir=tmp_path / "state", driver="fake", database_url=SecretStr("postgresql://nowhere/x"))
    with pytest.raises(ConfigError, match="database is sqlite"):
        await restore(postgres, backup)
    url = SecretStr(f"sqlite:///{backup / 'holdfast.db'}")
    elsewhere = Config(state_dir=tmp_path / "state", driver="fake", database_url=url)
    with pytest.raises(Conflict, match="database in"):
        await restore(elsewhere, backup)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("content", ["", "{", json.dumps({"format": 99, "version": "9"})])
def test_what_is_no_backup(tmp_path: Path, content: str) -> None:
    (tmp_path / "backup.json").write_text(content)
    with pytest.raises(ConfigError):
        Manifest.read(tmp_path)


def test_no_daemon_starts_on_half_of_one(tmp_path: Path) -> None:
    (tmp_path / "restoring").touch()
    with pytest.raises(ConfigError, match="half restored"):
        refuse_half(tmp_path)


def test_rows_are_copied_while_others_write(tmp_path: Path) -> None:
    source = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    source.execute("PRAGMA journal_mode = WAL")
    source.execute("CREATE TABLE t (x)")
    source.execute("INSERT INTO t VALUES (1)")
    source.execute("BEGIN")
    source.execute("INSERT INTO t VALUES (2)")
    copy_database(tmp_path / "a.db", tmp_path / "b.db")
    source.execute("COMMIT")
    assert sqlite3.connect(tmp_path / "b.db").execute("SELECT x FROM t").fetchall() == [(1,)]


def _link(backup: Path, name: str, target: str) -> None:
    path = backup / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("api_key", "/etc/shadow"),
        ("holdfast.db", "/etc/passwd"),
        ("images", "/etc"),
        ("sessions", "/etc"),
        ("thread-files/thr_1/fil_1", "/etc/shadow"),
        ("sessions/snp_1/disk.img", "/dev/sda"),
        ("snapshots/snp_1", "/etc"),
        ("workspaces/wks_1/disk.img", "/etc/passwd"),
        ("workspaces/wks_1/holder", "/etc/passwd"),
        ("workspaces/wks_1/disk", "/etc"),
    ],
)
async def test_nothing_in_it_leads_elsewhere(backup: Path, tmp_path: Path, name: str, target: str) -> None:
    _link(backup, name, target)
    with pytest.raises(ConfigError, match="do not trust it"):
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)
    assert not (tmp_path / "state").exists()


async def test_no_pipe_holds_it_up(backup: Path, tmp_path: Path) -> None:
    os.mkfifo(backup / "link_key")
    with pytest.raises(ConfigError, match="no file"):
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)


@pytest.mark.parametrize(
    "change",
    [
        {"node": "../../etc"},
        {"node": "another"},
        {"sessions": {"ses_1": "../../../etc"}},
        {"sessions": {"../x": "snp_1"}},
        {"sessions": ["ses_1"]},
        {"node": None},
        {"unknown": 1},
    ],
)
async def test_a_manifest_that_was_changed(backup: Path, tmp_path: Path, change: dict[str, object]) -> None:
    content = json.loads((backup / "backup.json").read_text())
    (backup / "backup.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(ConfigError):
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)
    assert not (tmp_path / "state").exists()


async def test_a_backup_without_its_folders(backup: Path, tmp_path: Path) -> None:
    (backup / "workspaces").rmdir()
    with pytest.raises(ConfigError, match="not complete"):
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\0" * 84, b"no database", b"SQLite format 3\0\x10\0cut"])
async def test_a_database_that_is_damaged(backup: Path, tmp_path: Path, content: bytes) -> None:
    (backup / "holdfast.db").write_bytes(content)
    with pytest.raises(HoldfastError):
        await restore(Config(state_dir=tmp_path / "state", driver="fake"), backup)
    with pytest.raises(ConfigError, match="half restored"):
        refuse_half(tmp_path / "state")


@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="there is no mkfs.ext4 here")
async def test_a_disk_is_checked_before_the_kernel_sees_it(backup: Path, tmp_path: Path) -> None:
    place = backup / "snapshots" / "snp_1"
    place.mkdir()
    image = place / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    process = await asyncio.create_subprocess_exec("mkfs.ext4", "-q", "-F", str(image))
    assert await process.wait() == 0
    mine = place / "workspace" / "disk"
    mine.mkdir(parents=True)
    (mine / "disk.img").write_text("a file of a sandbox, by chance of that name")
    await restore(Config(state_dir=tmp_path / "well", driver="fake"), backup)
    with image.open("r+b") as file:
        file.truncate(4 << 20)
    with pytest.raises(ConfigError, match="e2fsck says"):
        await restore(Config(state_dir=tmp_path / "cut", driver="fake"), backup)
    with image.open("r+b") as file:
        file.write(os.urandom(1 << 20))
    with pytest.raises(ConfigError, match="e2fsck says"):
        await restore(Config(state_dir=tmp_path / "noise", driver="fake"), backup)
