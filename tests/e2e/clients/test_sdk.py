"""The SDK against a real daemon: what the README promises, and what happens when the daemon goes away in between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.errors import (
    BadInput,
    FileExists,
    FileMissing,
    Forbidden,
    SessionGone,
    SessionNotFound,
    Unauthorized,
    Unavailable,
    UnknownImage,
)
from holdfast.sdk import Client, CommandFailed, Limits, SyncClient, request_id
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import containers

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.key) as client:
        yield client


async def test_a_session_from_begin_to_end(client: Client, daemon: DaemonProcess) -> None:
    async with client.create_session(ttl_seconds=60, env={"A": "1"}, metadata={"who": "me"}) as session:
        assert (session.status, session.info.ttl_seconds, session.info.metadata) == ("active", 60, {"who": "me"})
        await session.exec("cd /tmp; B=2")
        result = await session.exec("echo $A $B $PWD; echo oops >&2; exit 4")
        assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("1 2 /tmp\n", "oops\n", 4, False)
        assert result.shell_restarted
        assert await session.exec_result(result.exec_id) == result
        with pytest.raises(CommandFailed, match="4"):
            result.check()
        await session.write("/workspace/dir/file", "text ✓", mode=0o600)
        assert (await session.read("/workspace/dir/file")).decode() == "text ✓"
        assert await session.read("/workspace/dir/file", max_bytes=4) == b"text"
        assert (await session.exec("stat -c %a /workspace/dir/file")).stdout == "600\n"
        same = await client.get_session(session.id)
        assert (same.id, same.info.cwd) == (session.id, "/tmp")
        assert session.id in [one.id for one in await client.list_sessions()]
    assert (await session.refresh()).status == "destroyed"
    assert session.id not in await asyncio.to_thread(containers, daemon)
    await session.destroy()


async def test_a_session_to_keep(client: Client) -> None:
    session = await client.create_session(limits=Limits(memory_mb=128, disk_mb=32), writable_root=True)
    assert (session.info.limits.memory_mb, session.info.limits.disk_mb, session.info.writable_root) == (128, 32, True)
    other = await client.get_session(session.id)
    assert (await other.exec("echo kept", timeout_ms=5000)).check().stdout == "kept\n"
    await other.destroy()


async def test_a_large_file_both_ways(client: Client) -> None:
    data = bytes(range(256)) * (1 << 16)
    async with client.create_session() as session:
        await session.write("/workspace/large", data)
        assert await session.read("/workspace/large") == data
        await session.write("/workspace/empty", b"")
        assert await session.read("/workspace/empty") == b""


async def test_files_and_changes(client: Client, tmp_path: Path) -> None:
    async with client.create_session() as session:
        files = session.files
        async with contextlib.aclosing(files.watch("/workspace", recursive=True)) as changes:
            assert (await anext(changes)).kind == "ready"
            await files.mkdir("/workspace/a/b", parents=True)
            await files.upload(b"x" * 5_000_000, "/workspace/a/b/f")
            seen = set()
            async for change in changes:
                seen.add((change.kind, change.target or change.path))
                if ("created", "/workspace/a/b/f") in seen:
                    break
        assert seen == {("created", f"/workspace/{path}") for path in ("a", "a/b", "a/b/f")}
        assert [entry.path for entry in await files.find("/workspace", "**/f")] == ["/workspace/a/b/f"]
        await files.download_folder("/workspace", tmp_path / "w")
        assert (tmp_path / "w" / "a" / "b" / "f").read_bytes() == b"x" * 5_000_000
        with pytest.raises(FileExists):
            await files.copy("/workspace/a/b/f", "/workspace/a/b/f")


async def test_many_at_once(client: Client) -> None:
    async def one(number: int) -> str:
        async with client.create_session() as session:
            return (await session.exec(f"echo {number}; sleep 0.2")).stdout

    assert await asyncio.gather(*(one(number) for number in range(6))) == [f"{number}\n" for number in range(6)]


async def test_errors_have_the_daemons_own_classes(client: Client, daemon: DaemonProcess) -> None:
    async with client.create_session() as session:
        with pytest.raises(FileMissing) as missing:
            await session.read("/nothing")
        assert (request_id(missing.value) or "").startswith("req_")
        with pytest.raises(Forbidden):
            await session.write("/usr/x", "x")
        with pytest.raises(BadInput):
            await session.exec("true", timeout_ms=10**9)
        result = await session.exec("sleep 100", timeout_ms=300)
        assert result.timed_out and not result.ok
    with pytest.raises(SessionGone):
        await session.exec("true")
    with pytest.raises(SessionNotFound):
        await client.get_session("ses_nothing")
    with pytest.raises(UnknownImage):
        await client.create_session(image="nothing")
    async with Client(daemon.url, "wrong-key-wrong-key") as stranger:
        with pytest.raises(Unauthorized):
            await stranger.list_sessions()


async def test_the_daemon_is_restarted_in_between(mortal: DaemonProcess) -> None:
    """A long command, a daemon that dies and comes back on the same port: the call just takes longer."""
    async with Client(mortal.url, mortal.key, retries=8) as client:
        session = await client.create_session()
        running = asyncio.create_task(
            session.exec("echo x >> /workspace/n; until [ -e /workspace/go ]; do sleep 0.1; done; wc -l < n")
        )
        path = mortal.state_dir / "oci" / session.id / "disk" / "workspace"
        await asyncio.to_thread(wait_for, (path / "n").exists, "the command runs")
        await asyncio.to_thread(mortal.restart)
        await session.write("/workspace/go", "")
        assert (await running).stdout == "1\n"
        await session.destroy()


async def test_no_daemon() -> None:
    async with Client("http://127.0.0.1:9", "some-key-some-key-1", retries=1) as client:
        with pytest.raises(Unavailable, match="holdfast up"):
            await client.list_sessions()


def test_the_same_without_async(daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client, client.create_session(ttl_seconds=60) as session:
        assert session.exec("cd /tmp; pwd").stdout == "/tmp\n"
        session.write("/tmp/x", b"\x00\xff")
        assert session.read("/tmp/x") == b"\x00\xff"
        assert session.id in [one.id for one in client.list_sessions("active")]
        assert client.get_session(session.id).exec("pwd").stdout == "/tmp\n"
        assert client.images.list()[0].name == "host"
    with SyncClient(daemon.url, daemon.key) as client:
        assert client.get_session(session.id).status == "destroyed"


async def test_found_without_being_told(mortal: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the files that the daemon leaves in its state directory."""
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(mortal.state_dir))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_API_KEY", mortal.key)
    async with Client() as client:
        assert client.url == mortal.url
        assert await client.list_sessions() == []
