"""Background processes on a real sandbox: pipes and terminals, input, signals, output after the end, restarts."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from holdfast.errors import BadInput, Conflict, FileMissing, ProcessNotFound
from holdfast.sdk import Chunk, Client, Process, Session, SyncClient
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.footprint import descriptors_of, runner_descriptors

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.key) as client:
        yield client


@pytest.fixture
async def session(client: Client) -> AsyncIterator[Session]:
    async with client.create_session(env={"FROM": "session"}) as session:
        yield session


async def text_of(process: Process) -> str:
    return "".join([chunk.text for chunk in await process.output()])


async def test_a_process_from_start_to_end(session: Session) -> None:
    line = "echo $FROM $MORE $PWD; echo oops >&2; exit 7"
    process = await session.processes.start(line, env={"MORE": "x"}, cwd="/tmp")
    info = await process.wait()
    assert (info.running, info.exit_code, info.cmd, info.pty) == (False, 7, line, False)
    assert info.ended_at is not None and info.ended_at >= info.started_at
    chunks = await process.output()
    assert {chunk.stream: chunk.text for chunk in chunks} == {"stdout": "session x /tmp\n", "stderr": "oops\n"}
    assert await process.output(3, max_bytes=4) == [Chunk("stdout", 3, b"sion")]
    assert [one.id for one in await session.processes.list()] == [process.id]
    same = await session.processes.get(process.id)
    assert same.exit_code == 7 and await text_of(same) == await text_of(process)


async def test_argv_is_not_a_shell_line(session: Session) -> None:
    process = await session.processes.start(["printf", "%s|", "a b", "$HOME", "*"])
    await process.wait()
    assert await text_of(process) == "a b|$HOME|*|"


async def test_what_cannot_be_started(session: Session) -> None:
    with pytest.raises(FileMissing, match="no-such-program"):
        await session.processes.start(["no-such-program"])
    await session.write("/workspace/text", "no program")
    with pytest.raises(Exception, match="/workspace/text") as refused:
        await session.processes.start(["/workspace/text"])
    assert getattr(refused.value, "code", None) == "forbidden"
    with pytest.raises(BadInput, match="no directory"):
        await session.processes.start("true", cwd="/nowhere")
    with pytest.raises(BadInput, match="runs as sandbox"):
        await session.processes.start("true", user="root")
    await (await session.processes.start("true", user="sandbox")).wait()
    with pytest.raises(BadInput, match="argv"):
        await session.processes.start([])
    assert len(await session.processes.list()) == 1


async def test_input_and_its_end(session: Session) -> None:
    process = await session.processes.start("read first; echo got $first; wc -c", stdin=True)
    await process.write("one\n")
    follower = aiter(process.follow())
    assert (await anext(follower)).text == "got one\n"
    large = bytes(3 << 20)  # far more than a pipe holds
    for start in range(0, len(large), 1 << 20):
        await process.write(large[start : start + (1 << 20)])
    assert process.running
    await process.close_stdin()
    assert [chunk.text.strip() async for chunk in follower] == [str(3 << 20)]
    assert process.exit_code == 0
    with pytest.raises(Conflict):
        await process.write("more")
    closed = await session.processes.start("cat; echo end")
    assert (await closed.wait(10_000)).exit_code == 0  # without stdin there is the end of it at once
    with pytest.raises(Conflict, match="without stdin"):
        await closed.write("x")


async def test_nothing_ends_it_but_a_signal(session: Session) -> None:
    process = await session.processes.start("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    follower = aiter(process.follow())
    assert (await anext(follower)).text == "ready\n"
    assert (await process.wait(200)).running
    await process.signal("TERM")
    assert "".join([chunk.text async for chunk in follower if chunk.stream == "stdout"]) == "bye\n"
    assert process.exit_code == 3
    await process.signal("KILL")  # ended already: fine
    tree = await session.processes.start("sleep 1000 & sleep 1000")
    await tree.signal("SIGKILL")
    assert (await tree.wait()).exit_code == 137
    assert (await session.exec("pgrep -c sleep")).stdout == "0\n"
    with pytest.raises(BadInput):
        await tree.signal("NONSENSE")
    await tree.kill()
    with pytest.raises(ProcessNotFound):
        await tree.refresh()


async def test_killing_forgets_it(session: Session) -> None:
    process = await session.processes.start("sleep 1000")
    await process.kill()
    assert await session.processes.list() == []
    assert (await session.exec("pgrep -c sleep")).stdout == "0\n"


async def test_a_terminal_of_its_own(session: Session) -> None:
    process = await session.processes.start("tty; stty size; read x; echo got $x", pty=(10, 33))
    follower = aiter(process.follow())
    seen = ""
    while "33" not in seen:
        seen += (await anext(follower)).text
    assert "/dev/pts/" in seen and "10 33" in seen
    await process.write("hi\n")
    rest = "".join([chunk.text async for chunk in follower])
    assert "got hi" in rest and process.exit_code == 0
    loop = await session.processes.start("trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done", pty=True)
    follower = aiter(loop.follow())
    await anext(follower)
    await loop.resize(40, 100)
    assert "40 100" in (await anext(follower)).text
    await loop.kill()


async def test_an_idempotency_key_starts_it_once(session: Session) -> None:
    one = await session.processes.start("echo x >> n", idempotency_key="same")
    two = await session.processes.start("echo x >> n", idempotency_key="same")
    assert one.id == two.id
    await two.wait()
    assert (await session.exec("wc -l < n")).stdout == "1\n"


async def test_it_outlives_the_daemon(mortal: DaemonProcess) -> None:
    async with Client(mortal.url, mortal.key) as client:
        session = await client.create_session()
        process = await session.processes.start("echo a; read x; echo $x; exit 9", stdin=True)
        seen = []
        async for chunk in process.follow():
            seen.append(chunk.text)
            if len(seen) == 1:
                await asyncio.to_thread(mortal.restart)
                await process.write("b\n")
        assert seen == ["a\n", "b\n"]
        assert process.exit_code == 9
        await asyncio.to_thread(mortal.restart)
        again = await session.processes.get(process.id)
        assert (again.exit_code, await text_of(again)) == (9, "a\nb\n")
        await session.destroy()


async def test_much_output_keeps_the_end(session: Session) -> None:
    process = await session.processes.start("head -c 20000000 /dev/zero | tr '\\0' x; echo end")
    info = await process.wait()
    assert info.output_bytes == 20_000_004 and info.output_kept_from > 0
    chunks = await process.output()
    assert chunks[0].offset == chunks[0].dropped == info.output_kept_from
    last = await process.output(info.output_bytes - 4)
    assert last[0].text == "end\n"


async def test_a_terminal_by_websocket(session: Session) -> None:
    async with session.terminal(rows=20, columns=70) as terminal:
        await terminal.write(b"stty size; A=kept\r")
        await read_until(terminal.read(), b"20 70")
        await terminal.resize(30, 90)
        await terminal.write(b"stty size\r")
        await read_until(terminal.read(), b"30 90")
        await terminal.write(b"sleep 1000\r")
        running = (await session.processes.list())[0]
        assert running.running and running.info.pty
        await session.exec("until pgrep sleep; do :; done", timeout_ms=10_000)
        await terminal.write(b"\x03")  # Ctrl-C ends the sleep, and not the shell
        await terminal.write(b"echo $((6*7))\r")
        await read_until(terminal.read(), b"42\r\n")
        seen = terminal.offset
    # The client is gone; the shell is not. Another one attaches, and sees what it missed.
    async with session.terminal(process_id=terminal.process_id, offset=seen) as again:
        await again.write(b"echo $A; exit 6\r")
        rest = b"".join([data async for data in again.read()])
        assert b"kept\r\n" in rest and b"20 70" not in rest
        assert again.ended is not None and again.ended.exit_code == 6
    async with session.terminal(process_id=terminal.process_id) as replay:
        everything = b"".join([data async for data in replay.read()])
        assert b"20 70" in everything and b"30 90" in everything and b"kept" in everything
    with pytest.raises(ProcessNotFound):
        async with session.terminal(process_id="prc_nothing"):
            pass
    plain = await session.processes.start("sleep 1000")
    with pytest.raises(BadInput, match="no terminal"):
        async with session.terminal(process_id=plain.id):
            pass


async def test_a_terminal_survives_the_daemon(mortal: DaemonProcess) -> None:
    async with Client(mortal.url, mortal.key) as client:
        session = await client.create_session()
        async with session.terminal() as terminal:
            await terminal.write(b'A=still; echo re""ady\r')
            await read_until(terminal.read(), b"ready\r\n")
        await asyncio.to_thread(mortal.restart)
        async with session.terminal(process_id=terminal.process_id, offset=terminal.offset) as again:
            await again.write(b"echo $A; exit\r")
            assert b"still\r\n" in b"".join([data async for data in again.read()])
        await session.destroy()


async def test_bad_websockets(session: Session, daemon: DaemonProcess) -> None:
    url = f"{daemon.url}/v1/sessions/{session.id}/terminal"
    headers = {"Authorization": f"Bearer {daemon.key}"}
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url)
        assert refused.value.status in (401, 403)
        async with http.ws_connect(url.replace(session.id, "ses_nothing"), headers=headers) as socket:
            assert json.loads((await socket.receive()).data)["error"]["code"] == "session_not_found"
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        async with http.ws_connect(url, headers=headers) as socket:
            assert "attached" in json.loads((await socket.receive()).data)
            await socket.send_str("nonsense")
            told = await socket.receive()
            while told.type is aiohttp.WSMsgType.BINARY:
                told = await socket.receive()
            assert json.loads(told.data)["error"]["code"] == "bad_input"


async def test_sockets_that_vanish_leave_nothing(session: Session, daemon: DaemonProcess) -> None:
    headers = {"Authorization": f"Bearer {daemon.key}"}
    url = f"{daemon.url}/v1/sessions/{session.id}/terminal"

    async def vanish(process_id: str) -> None:
        async with aiohttp.ClientSession(headers=headers) as http:
            socket = await http.ws_connect(f"{url}?process_id={process_id}")
            await socket.receive()
            connection = socket._conn  # a connection that just stops, without a close frame
            assert connection is not None and connection.transport is not None
            connection.transport.abort()

    process = await session.processes.start("while :; do echo y; sleep 0.02; done", pty=True)
    await vanish(process.id)
    before, inside = descriptors_of(daemon.pid), runner_descriptors(daemon, session.id)
    for _ in range(15):
        await vanish(process.id)
    await asyncio.to_thread(wait_for, lambda: descriptors_of(daemon.pid) <= before + 4, "the daemon as before", 15)
    await asyncio.to_thread(
        wait_for, lambda: runner_descriptors(daemon, session.id) <= inside, "the runner as before", 15
    )
    await process.kill()


async def read_until(output: AsyncIterator[bytes], wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(30):
        async for data in output:
            seen += data
            if wanted in seen:
                return seen
    raise AssertionError(f"{wanted!r} never came; this did: {seen!r}")


def test_the_same_without_async(daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client, client.create_session() as session:
        process = session.processes.start("read x; echo $x", stdin=True)
        process.write("hello\n")
        assert [chunk.text for chunk in process.follow()] == ["hello\n"]
        assert process.wait().exit_code == 0
        assert [one.id for one in session.processes.list()] == [process.id]
        with session.terminal("echo in; tty") as terminal:
            shown = b"".join(terminal.read())
            assert b"/dev/pts" in shown and terminal.ended is not None
