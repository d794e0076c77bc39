"""The host's side of work on files, with a worker at the other end that does not keep to the rules."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from holdfast.errors import DiskFull, ProtocolError, SandboxLost, TooManyWatches
from holdfast.link.link import Link
from holdfast.link.streams import read_frame
from holdfast.protocol import frames
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.use import file_task
from holdfast.sessions.use import files as session_files
from holdfast.sessions.use.file_types import Change, Entry, Search
from holdfast.sessions.use.files import MAX_WATCHES, SessionFiles
from holdfast.sessions.watch.room import Room
from unit.sessions.use.one_session import OneSession

pytestmark = pytest.mark.anyio
ENTRY = {"path": "/f", "kind": "file", "size": 3, "mode": 0o644, "uid": 0, "gid": 0, "mtime_ns": 1, "inode": 1}

Worker = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def files_with(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SessionFiles]:
    """A session whose every task is served by ``worker``, over a real socket."""
    server = await asyncio.start_unix_server(worker, tmp_path / "socket")

    @contextlib.asynccontextmanager
    async def open_stream(*_: object) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
        try:
            yield reader, writer
        finally:
            writer.close()

    monkeypatch.setattr(file_task, "open_stream", open_stream)
    monkeypatch.setattr(file_task, "SILENT_SECONDS", 0.2)
    using = OneSession(Link("ses_1", "token"))
    try:
        yield SessionFiles(using, Room(Path("/"), 0, SessionMetrics(CollectorRegistry())), 1 << 20)
    finally:
        assert using.session.users == 0, "it is not in use any more"
        server.close()


def says(*answers: bytes) -> Worker:
    async def worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"".join(answers))
        await writer.drain()
        while await reader.read(1 << 16):
            pass
        writer.close()

    return worker


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 16)


async def test_an_error_in_the_middle_of_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the upload at once, however much there is still to send."""
    told = frames.encode({"error": {"code": "disk_full", "message": "full"}})
    async with files_with(says(told), tmp_path, monkeypatch) as files:
        with pytest.raises(DiskFull, match="full"):
            await files.upload("ses_1", "/f", endless(), mode=None)


async def test_a_worker_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with files_with(says(), tmp_path, monkeypatch) as files:
        with pytest.raises(SandboxLost, match="nothing for"):
            await files.stat("ses_1", "/f", follow=False)


async def test_a_worker_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast(asyncio.Transport, writer.transport).pause_reading()
        await given_up.wait()
        writer.transport.abort()

    async with files_with(deaf, tmp_path, monkeypatch) as files:
        with pytest.raises(SandboxLost):
            await files.upload("ses_1", "/f", endless(), mode=None)
        given_up.set()


async def test_a_worker_that_is_busy_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for _ in range(8):  # for longer than it may be silent, and never silent for nearly as long
            writer.write(frames.encode({"busy": True}))
            await asyncio.sleep(0.3)  # its work
        writer.write(frames.encode({}))

    async with files_with(busy, tmp_path, monkeypatch) as files:
        monkeypatch.setattr(file_task, "SILENT_SECONDS", 2.0)
        await files.remove("ses_1", "/f", recursive=True)


async def test_a_file_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(frames.encode({"entry": ENTRY}))
        await read_frame(reader)
        writer.write(b"fi")
        writer.close()

    async with files_with(short, tmp_path, monkeypatch) as files:
        got: list[bytes] = []
        with pytest.raises(SandboxLost, match="ended early"):
            async with files.download("ses_1", "/f") as download:
                got += [piece async for piece in download.read(0, 3)]


@pytest.mark.parametrize(
    "answer",
    [
        frames.encode({}, b"\n".join([json.dumps(ENTRY).encode()] * 3)),
        frames.encode({}, b"no json"),
        frames.encode({}, b"[]"),
        frames.encode({"end": True, "after": 7}),
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\2\0\0\0\0[]",
    ],
)
async def test_lists_that_make_no_sense(answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with files_with(says(answer), tmp_path, monkeypatch) as files:
        with pytest.raises(ProtocolError):
            await files.list("ses_1", Search("/", limit=2))


@pytest.mark.parametrize(
    "body",
    [b"\n".join([json.dumps(ENTRY).encode()] * 100_000), b'{"path":[' + b"[]," * 300_000 + b"[]]}"],
    ids=["entries", "values"],
)
async def test_a_list_that_is_much_too_long_is_not_parsed(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse it would hold up everybody for a second."""
    parsed: list[bytes] = []
    monkeypatch.setattr(session_files, "_entries", parsed.append)
    async with files_with(says(frames.encode({}, body)), tmp_path, monkeypatch) as files:
        with pytest.raises(ProtocolError, match="more than was asked for"):
            await files.list("ses_1", Search("/", limit=1000))
    assert not parsed


async def test_watches_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with files_with(says(frames.encode({"ready": True})), tmp_path, monkeypatch) as files:
        watches = [files.watch("ses_1", "/", recursive=False) for _ in range(MAX_WATCHES)]
        for watch in watches:
            assert await anext(watch) is None
        with pytest.raises(TooManyWatches):
            await anext(files.watch("ses_1", "/", recursive=False))
        await watches.pop().aclose()
        another = files.watch("ses_1", "/", recursive=False)
        assert await anext(another) is None
        for watch in (*watches, another):
            await watch.aclose()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["file", "/x", "created", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ENTRY, "directory"]), inner),
    max_leaves=10,
)


@given(JSON, st.sampled_from(sorted(ENTRY)))
def test_nothing_that_a_worker_tells_is_believed(value: object, name: str) -> None:
    for told in (value, {**ENTRY, name: value}, {**ENTRY, "target": value}):
        try:
            entry = Entry.of(told)
        except ProtocolError:
            continue
        assert entry.size >= 0 and 0 <= entry.mode <= 0o7777 and isinstance(entry.path, str)
        entry.path.encode("utf-8", "surrogateescape")
    with contextlib.suppress(ProtocolError):
        Change.of(value)
