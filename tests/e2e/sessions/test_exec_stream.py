"""Followed commands on a real sandbox: output when it is written, cuts, restarts, cancel, back-pressure."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import aiohttp
import httpx2
import pytest

from holdfast.errors import ExecNotFound, SessionGone
from holdfast.sdk import Chunk, Client, Session, SyncClient
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.footprint import descriptors_of, rss_of, runner_descriptors

pytestmark = pytest.mark.anyio

WAIT_FOR_GO = "until [ -e /workspace/go ]; do sleep 0.05; done"


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.key) as client:
        yield client


@pytest.fixture
async def session(client: Client) -> AsyncIterator[Session]:
    async with client.create_session() as session:
        yield session


async def test_output_arrives_while_the_command_runs(session: Session) -> None:
    stream = session.exec_stream(f"echo one; echo two >&2; {WAIT_FOR_GO}; printf 'thr\\xffee'; exit 3")
    chunks = aiter(stream)
    assert await anext(chunks) == Chunk("stdout", 0, b"one\n")
    assert await anext(chunks) == Chunk("stderr", 4, b"two\n")
    assert stream.exec_id is not None
    with pytest.raises(RuntimeError, match="not ended"):
        _ = stream.result
    await session.write("/workspace/go", "")  # only now can it go on: what came before came while it ran
    assert [chunk async for chunk in chunks] == [Chunk("stdout", 8, b"thr\xffee")]
    assert (stream.result.exit_code, stream.result.timed_out, stream.result.ok) == (3, False, False)
    same = await session.exec_result(stream.exec_id)
    assert (same.exit_code, same.stderr) == (3, "two\n")


async def test_the_shell_is_the_same_one(session: Session) -> None:
    await session.exec_stream("cd /tmp; A=5").wait()
    assert (await session.exec("echo $A $PWD")).stdout == "5 /tmp\n"
    await session.refresh()
    assert session.info.cwd == "/tmp"


async def test_going_on_where_it_stopped(session: Session) -> None:
    stream = session.exec_stream(f"echo begin; {WAIT_FOR_GO}; echo end")
    async with aclosing(aiter(stream)) as chunks:
        first = await anext(chunks)  # and now the client goes away
    assert stream.exec_id is not None
    await session.write("/workspace/go", "")
    rest = session.follow_exec(stream.exec_id, offset=first.end)
    assert b"".join([chunk.data async for chunk in rest]) == b"end\n"
    assert rest.result.exit_code == 0
    again = session.follow_exec(stream.exec_id, offset=3)
    assert b"".join([chunk.data async for chunk in again]) == b"in\nend\n"
    beyond = session.follow_exec(stream.exec_id, offset=10**6)
    assert [chunk async for chunk in beyond] == []
    with pytest.raises(ExecNotFound):
        await session.follow_exec("exe_nothing").wait()


async def test_a_daemon_that_dies_in_the_middle_is_not_noticed(mortal: DaemonProcess) -> None:
    async with Client(mortal.url, mortal.key) as client:
        session = await client.create_session()
        stream = session.exec_stream(f"for i in 1 2 3; do echo $i; done; {WAIT_FOR_GO}; for i in 4 5; do echo $i; done")
        seen = b""
        async for chunk in stream:
            if not seen:
                await asyncio.to_thread(mortal.restart)
                await session.write("/workspace/go", "")
            seen += chunk.data
        assert seen == b"1\n2\n3\n4\n5\n"
        assert stream.result.exit_code == 0
        await session.destroy()


async def test_timeout_and_cancel(session: Session) -> None:
    late = session.exec_stream("echo x; sleep 100", timeout_ms=300)
    assert [chunk.data async for chunk in late] == [b"x\n"]
    assert (late.result.timed_out, late.result.cancelled, late.result.exit_code) == (True, False, 124)
    stream = session.exec_stream("B=1; echo x; sleep 1000; echo never")
    async for _chunk in stream:
        result = await stream.cancel()
        assert (result.cancelled, result.timed_out, result.exit_code, result.stdout) == (True, False, 130, "x\n")
    assert stream.result.cancelled
    assert stream.exec_id is not None
    assert (await session.cancel_exec(stream.exec_id)).cancelled  # once more changes nothing
    assert (await session.exec("echo $B; pgrep sleep")).stdout == "1\n"
    done = await session.exec("true")
    assert not (await session.cancel_exec(done.exec_id)).cancelled


async def test_a_command_in_the_queue_can_be_cancelled(session: Session) -> None:
    first = session.exec_stream(f"echo running; {WAIT_FOR_GO}")
    async with aclosing(aiter(first)) as chunks:
        await anext(chunks)
        second = session.exec_stream("echo second > /workspace/second")
        follower = asyncio.ensure_future(second.wait())
        # The daemon has it, and the first one is still running.
        await asyncio.to_thread(wait_for, lambda: second.exec_id is not None, "the second command is in the queue")
        cancelling = asyncio.ensure_future(second.cancel())
        await session.write("/workspace/go", "")
        assert (await cancelling).cancelled
        assert (await follower).exit_code == 130
    assert (await session.exec("ls /workspace")).stdout == "go\n"


async def test_an_idempotency_key_runs_it_once(session: Session) -> None:
    for _ in range(2):
        stream = session.exec_stream("echo x >> n; wc -l < n", idempotency_key="the-same")
        assert b"".join([chunk.data async for chunk in stream]) == b"1\n"


async def test_a_slow_reader_loses_nothing_and_costs_the_daemon_nothing(
    client: Client, session: Session, daemon: DaemonProcess
) -> None:
    size = 64 << 20
    before = rss_of(daemon.pid)
    stream = session.exec_stream(f"head -c {size} /dev/zero | tr '\\0' x; echo done >&2")
    total = peak = 0
    async for chunk in stream:
        assert chunk.dropped == 0 and chunk.offset == total
        total += len(chunk.data)
        if total < size // 4:
            await asyncio.sleep(0.02)  # slower than any program writes
        peak = max(peak, rss_of(daemon.pid))
    assert total == size + len("done\n")
    assert peak - before < 20 << 20
    assert stream.result.exit_code == 0


async def test_nobody_follows_and_the_command_is_not_held_up(session: Session) -> None:
    stream = session.exec_stream("head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    async with aclosing(aiter(stream)) as chunks:
        await anext(chunks)
    assert stream.exec_id is not None
    result = await session.exec_result(stream.exec_id)
    assert result.exit_code == 0 and result.truncated
    rest = [chunk async for chunk in session.follow_exec(stream.exec_id)]
    assert rest[0].dropped == rest[0].offset > 0
    assert rest[-1].end == 30_000_004


async def test_server_sent_events_on_the_wire(session: Session, daemon: DaemonProcess) -> None:
    url = f"{daemon.url}/v1/sessions/{session.id}/exec/stream"
    headers = {"Authorization": f"Bearer {daemon.key}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
        reply = await http.post(url, json={"cmd": "echo hällo; echo err >&2"})
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["x-request-id"]
        events = [block.split("\n") for block in reply.text.strip().split("\n\n")]
        assert [event[0] for event in events] == ["event: started", "event: stdout", "event: stderr", "event: exit"]
        exec_id = json.loads(events[0][1].removeprefix("data: "))["exec_id"]
        assert events[1][1:] == ["id: 7", 'data: {"offset":0,"text":"hällo\\n"}']
        again = await http.get(f"{url.removesuffix('/stream')}/{exec_id}/stream", headers={"Last-Event-ID": "7"})
        assert "hällo" not in again.text and '"text":"err\\n"' in again.text
        bad = await http.post(url, json={"cmd": "x", "timeout_ms": 10**9})
        assert (bad.status_code, bad.json()["error"]["code"]) == (422, "bad_input")
        missing = await http.get(f"{url.removesuffix('/stream')}/exe_nothing/stream")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "exec_not_found")


async def test_a_destroyed_session_ends_its_followers(client: Client) -> None:
    session = await client.create_session()
    stream = session.exec_stream("echo x; sleep 1000")
    with pytest.raises(SessionGone):
        async for _chunk in stream:
            await session.destroy()


async def test_clients_that_vanish_leave_nothing_behind(session: Session, daemon: DaemonProcess) -> None:
    headers = {"Authorization": f"Bearer {daemon.key}"}
    url = f"{daemon.url}/v1/sessions/{session.id}"
    process = await session.processes.start("while :; do echo y; sleep 0.05; done")

    async def vanish(method: str, path: str, body: object) -> None:
        async with aiohttp.ClientSession(headers=headers) as http:
            reply = await http.request(method, url + path, json=body)
            await reply.content.readany()
            reply.close()

    await vanish("POST", "/exec/stream", {"cmd": "echo x; sleep 0.2"})
    await session.exec("true")
    before, inside = descriptors_of(daemon.pid), runner_descriptors(daemon, session.id)
    for _ in range(20):
        await vanish("POST", "/exec/stream", {"cmd": "echo x; sleep 0.01"})
        await vanish("GET", f"/processes/{process.id}/stream", None)
    await session.exec("true")
    await asyncio.to_thread(wait_for, lambda: descriptors_of(daemon.pid) <= before + 4, "the daemon as before", 15)
    await asyncio.to_thread(
        wait_for, lambda: runner_descriptors(daemon, session.id) <= inside, "the runner as before", 15
    )
    await process.kill()


def test_the_same_without_async(daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client, client.create_session() as session:
        stream = session.exec_stream("echo a; echo b >&2")
        assert [(chunk.stream, chunk.text) for chunk in stream] == [("stdout", "a\n"), ("stderr", "b\n")]
        assert stream.result.ok
        slow = session.exec_stream("echo a; sleep 1000")
        for _chunk in slow:
            assert slow.cancel().cancelled
        assert slow.result.cancelled
