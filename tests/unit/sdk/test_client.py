"""The async client against the real API."""

import asyncio
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.api import ApiSettings
from holdfast.sdk import Client, CommandFailed, Limits, request_id
from support.api_host import ApiHost, running_api
from support.waiting import linger, until

pytestmark = pytest.mark.anyio


async def test_a_session_from_beginning_to_end(client: Client, api: ApiHost) -> None:
    async with client.create_session(
        "host", ttl_seconds=60, env={"A": "1"}, limits=Limits(memory_mb=64), metadata={"a": "b"}
    ) as session:
        assert session.status == "active"
        assert session.info.limits == Limits(1.0, 64, 256, 1024)
        assert (session.info.expires_at - session.info.created_at).total_seconds() == pytest.approx(60)
        result = await session.exec("echo hi", timeout_ms=1000)
        assert (result.stdout, result.exit_code, result.ok) == ("hi\n", 0, True)
        assert await session.exec_result(result.exec_id) == result
        assert result.check() is result
        assert (await session.exec("cat", stdin="in")).output == "in"
    assert (await session.refresh()).status == "destroyed"
    with pytest.raises(errors.SessionGone):
        await session.exec("true")


async def test_when_a_session_sleeps_by_itself_is_said_at_its_creation(client: Client) -> None:
    assert (await client.create_session(sleep={"pause_after_seconds": 600})).status == "active"
    with pytest.raises(errors.BadInput, match="sleep"):
        await client.create_session(sleep={"nap_after_seconds": 600})


async def test_stats(client: Client, api: ApiHost) -> None:
    async with client.create_session() as session:
        api.use(session.id)
        stats = await session.stats()
        assert (stats.memory_bytes, stats.disk_limit_bytes, stats.oom_kills) == (50 << 20, None, 1)
        assert [one.info.stats for one in await client.list_sessions()] == [None]
        [listed] = [one.info.stats for one in await client.list_sessions(stats=True)]
        assert listed is not None and replace(listed, uptime_seconds=stats.uptime_seconds) == stats
        starving = asyncio.run_coroutine_threadsafe(api.starve(session.id), api.loop)
        result = await session.exec("sleep 0.2; exit 137")
        starving.result()
        assert result.oom_killed
        with pytest.raises(CommandFailed, match="exit code 137, after its sandbox ran out of memory"):
            result.check()


async def test_create_can_be_awaited(client: Client) -> None:
    session = await client.create_session(limits={"cpus": 2})
    assert (await client.get_session(session.id)).info == session.info
    async with session:
        pass
    await session.destroy()


async def test_networks(client: Client) -> None:
    session = await client.create_session(network={"allow": ("pypi.org", "a.example:1")})
    assert session.info.network == {"allow": ["pypi.org", "a.example:1"]}
    assert (await client.create_session(network="full")).info.network == "full"
    with pytest.raises(errors.BadInput, match="allow"):
        await client.create_session(network={"allow": ["a/b"]})


async def test_a_failing_command_is_a_result(client: Client) -> None:
    session = await client.create_session()
    result = await session.exec("leaving; exit 3")
    assert not result.ok
    with pytest.raises(CommandFailed, match="exit code 3: leaving: command not found"):
        result.check()
    result = await session.exec("sleep 5", timeout_ms=10)
    with pytest.raises(CommandFailed, match="timed out"):
        result.check()


@pytest.mark.parametrize("size", [0, 1, 100_000, 10_000_000])
async def test_files(client: Client, api: ApiHost, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await client.create_session()
    noted = api.note(monkeypatch, "write_file")
    data = os.urandom(size)
    await session.write("/tmp/ü & ?", data, mode=0o755)
    assert await session.read("/tmp/ü & ?") == data
    assert await session.read("/tmp/ü & ?", max_bytes=5) == data[:5]
    assert noted == [((session.id, "/tmp/ü & ?", data), {"mode": 0o755})]
    await session.write("/tmp/t", "höi")
    assert await session.read("/tmp/t") == "höi".encode()
    await session.write("/tmp/t", memoryview(b"view"))
    assert await session.read("/tmp/t") == b"view"


async def test_lists_over_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sdk.client.PAGE", 2)
    ids = [(await client.create_session()).id for _ in range(5)]
    assert [one.id for one in await client.list_sessions()] == ids[::-1]
    await (await client.get_session(ids[0])).destroy()
    assert [one.id for one in await client.list_sessions("destroyed")] == ids[:1]
    assert [one.id for one in await client.list_sessions(["active", "error"])] == ids[:0:-1]


async def test_errors_are_the_servers_classes(client: Client, api: ApiHost) -> None:
    with pytest.raises(errors.SessionNotFound) as caught:
        await client.get_session("ses_nope")
    assert (request_id(caught.value) or "").startswith("req_")
    assert (caught.value.code, caught.value.status) == ("session_not_found", 404)
    with pytest.raises(errors.UnknownImage):
        await client.create_session("nope")
    session = await client.create_session()
    with pytest.raises(errors.BadInput, match="path: must be absolute"):
        await session.write("relative", b"")
    with pytest.raises(errors.BadInput, match="timeout_ms"):
        await session.exec("true", timeout_ms=0)
    with pytest.raises(errors.FileMissing):
        await session.read("/nope")
    async with Client(api.url, "wrong") as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.list_sessions()


async def test_a_busy_daemon_is_asked_again(client: Client, api: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await client.create_session()
    api.fail(monkeypatch, "exec", errors.Unavailable("starting"), times=2)
    assert (await session.exec("echo 1")).ok
    assert api.commands(session.id) == 1
    api.fail(monkeypatch, "exec", errors.RuntimeUnavailable("install runc"), times=1)
    with pytest.raises(errors.RuntimeUnavailable):  # waiting would not mend that
        await session.exec("echo 2")
    api.fail(monkeypatch, "write_file", errors.Unavailable("starting"), times=1)
    with pytest.raises(errors.Unavailable):  # a write is not repeated: somebody else may have written since
        await session.write("/x", b"")


async def test_images(client: Client, tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    assert (await client.images.import_("alpine", str(tmp_path))).kind == "imported"
    assert [one.name for one in await client.images.list()] == ["host", "alpine"]
    await client.images.remove("alpine")
    with pytest.raises(errors.ImageNotFound):
        await client.images.remove("alpine")


async def test_a_file_over_the_limit_is_refused_and_the_connection_lives_on(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(ApiSettings(max_body_bytes=1024 * 1024)) as api:
        async with Client(api.url, api.key) as client:
            session = await client.create_session()
            for _ in range(2):
                with pytest.raises(errors.TooLarge, match="over the limit"):
                    await session.write("/x", bytes(20_000_000))
            assert (await session.exec("echo on")).ok


async def test_a_client_that_leaves_makes_no_noise(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api() as api:
        async with Client(api.url, api.key) as client:
            session = await client.create_session()
        host, port = api.url.removeprefix("http://").split(":")
        head = f"POST /v1/sessions/{session.id}/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        for route, body in (("exec", b'{"cmd":"sleep 0.2"}'), ("exec", b'{"cm'), ("fs/write", b'{"path":')):
            with socket.create_connection((host, int(port))) as peer:
                key = b"Authorization: Bearer " + api.key.encode()
                length = len(body) if body.endswith(b"}") else 1000
                peer.sendall((head % route).encode() + key + b"\r\nContent-Length: %d\r\n\r\n" % length + body)
                await linger()  # it has begun with what there is
        await until(lambda: api.commands(session.id) == 1, "the command was begun")
        await until(lambda: not api.fake_host.busy(session.id), "it ran to its end all the same")
    seen = capsys.readouterr()
    assert "Traceback" not in seen.out + seen.err
    assert "unexpected" not in seen.out
    assert re.sub("\x1b[^m]*m", "", seen.out).count("status=499") == 2  # the log may be coloured
