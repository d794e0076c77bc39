"""``session.files``: every method over the real API, and local files that are never left half written."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.sdk import Client, FileChange, Files, Session, SyncClient, SyncFiles
from holdfast.sdk.sessions.local_files import read_folder
from support.api_host import ApiHost, running_api

pytestmark = pytest.mark.anyio
ODD = "\udcff\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHost]:
    with running_api(runners=True) as running:
        yield running


@pytest.fixture
async def session(client: Client) -> Session:
    return await client.create_session()


async def test_a_local_file_with_the_longest_name(session: Session, tmp_path: Path) -> None:
    w = f"{session.info.cwd}/w"
    name = "長" * 85
    await session.files.upload(b"bytes", f"{w}/a")
    await session.files.download(f"{w}/a", tmp_path / name)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(name, b"bytes")]


async def test_content(session: Session, tmp_path: Path) -> None:
    w = f"{session.info.cwd}/w"

    async def pieces() -> AsyncIterator[bytes]:
        yield b"from "
        yield b"an iterator"

    files = session.files
    local = tmp_path / "local"
    local.write_bytes(b"from a file")
    local.chmod(0o751)
    seen: list[int] = []
    assert (await files.upload(local, f"{w}/a", progress=seen.append)).mode == 0o751
    assert sum(seen) == 11
    assert (await files.upload(str(local), f"{w}/a", mode=0o600)).mode == 0o600
    assert (await files.upload(b"bytes", f"{w}/b")).size == 5
    odd = f"{w}/{ODD}"
    assert (await files.upload(pieces(), odd)).path == odd
    entry = await files.download(odd, tmp_path / "back", progress=seen.append)
    assert (entry.path, (tmp_path / "back").read_bytes()) == (odd, b"from an iterator")
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o644
    assert b"".join([piece async for piece in files.stream(f"{w}/b", start=1, count=3)]) == b"yte"
    assert b"".join([piece async for piece in files.stream(f"{w}/b", start=3)]) == b"es"
    assert [piece async for piece in files.stream(f"{w}/b", count=0)] == []
    with pytest.raises(errors.BadRange):
        await anext(files.stream(f"{w}/b", start=99))
    with pytest.raises(FileNotFoundError):
        await files.upload(tmp_path / "missing", f"{w}/c")


async def test_a_download_that_fails_leaves_the_old_file(session: Session, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(errors.FileMissing):
        await session.files.download("/nothing", tmp_path / "old")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


async def test_entries(session: Session) -> None:
    w = f"{session.info.cwd}/w"
    files = session.files
    assert (await files.mkdir(f"{w}/d", parents=True, mode=0o700)).mode == 0o700
    for name in ("x", "y", ODD):
        await files.upload(b"1", f"{w}/d/{name}")
    assert [entry.path for entry in await files.list(f"{w}/d")] == [f"{w}/d/x", f"{w}/d/y", f"{w}/d/{ODD}"]
    assert [entry.path for entry in await files.find(w, "d/[x]", kind="file")] == [f"{w}/d/x"]
    assert (await files.stat(f"{w}/d")).kind == "directory"
    assert (await files.move(f"{w}/d/{ODD}", f"{w}/z")).path == f"{w}/z"
    assert (await files.copy(f"{w}/d", f"{w}/e", recursive=True)).path == f"{w}/e"
    assert (await files.chmod(f"{w}/z", 0o444)).mode == 0o444
    with pytest.raises(errors.NotEmpty):
        await files.remove(f"{w}/d")
    await files.remove(f"{w}/d", recursive=True)
    with pytest.raises(errors.FileMissing):
        await files.stat(f"{w}/d")


async def test_all_pages_are_one_list(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    w = f"{session.info.cwd}/w"
    monkeypatch.setattr("holdfast.sdk.sessions.files.PAGE", 2)
    for number in range(5):
        await session.files.upload(b"", f"{w}/{number}")
    assert [entry.path for entry in await session.files.list(w)] == [f"{w}/{number}" for number in range(5)]


async def test_folders(session: Session, tmp_path: Path) -> None:
    w = f"{session.info.cwd}/w"
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "big").write_bytes(os.urandom(3 << 20))
    (source / "small").write_text("x")
    seen: list[int] = []
    done = await session.files.upload_folder(source, f"{w}/f", progress=seen.append)
    assert (done.files, done.bytes) == (2, (3 << 20) + 1) and sum(seen) > 3 << 20
    back = await session.files.download_folder(f"{w}/f", tmp_path / "target")
    assert (back.files, back.left_out) == (2, ())
    assert (tmp_path / "target" / "sub" / "big").read_bytes() == (source / "sub" / "big").read_bytes()
    with pytest.raises(FileNotFoundError):
        await session.files.upload_folder(tmp_path / "missing", f"{w}/f")
    with pytest.raises(errors.FileMissing):
        await session.files.download_folder(f"{w}/missing", tmp_path / "target")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        await session.files.download_folder(f"{w}/f", tmp_path / "file")


async def test_watch_and_link(session: Session, api: ApiHost) -> None:
    w = f"{session.info.cwd}/w"
    await session.files.upload(b"linked", f"{w}/x")
    async with aclosing(session.files.watch(w)) as changes:
        assert await anext(changes) == FileChange("ready", w, False, None)
        await session.files.mkdir(f"{w}/{ODD}")
        assert await anext(changes) == FileChange("created", f"{w}/{ODD}", True, None)
    link = await session.files.link(f"{w}/x", expires_seconds=60)
    assert link.url.startswith(f"{api.url}/v1/files/")


async def test_a_folder_that_is_given_up(tmp_path: Path) -> None:
    """Whoever stops reading ends the thread that packs; nothing is left behind."""
    (tmp_path / "big").write_bytes(bytes(8 << 20))
    before = len(list(Path("/proc/self/fd").iterdir()))
    pieces = read_folder(tmp_path)
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]  # it is a generator
    await asyncio.sleep(0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_without_async(api: ApiHost, tmp_path: Path) -> None:
    with SyncClient(api.url, api.key) as client, client.create_session() as session:
        w = f"{session.info.cwd}/w"
        session.files.upload(b"sync", f"{w}/x")
        assert b"".join(session.files.stream(f"{w}/x")) == b"sync"
        for change in session.files.watch(w):
            assert change.kind == "ready"
            break
        session.files.download_folder(w, tmp_path / "t")
        assert (tmp_path / "t" / "x").read_bytes() == b"sync"


def test_nothing_is_missing() -> None:
    assert {name for name in dir(Files) if not name.startswith("_")} <= set(dir(SyncFiles))
