"""Ports of a sandbox that has no network: who listens, and ways to them."""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import httpx2
import pytest

from holdfast.sdk import Client, Forward, Process, Session, SyncClient
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.footprint import descriptors_of, runner_descriptors
from support.waiting import until

pytestmark = pytest.mark.anyio

HOLDFAST = Path(sys.executable).parent / "holdfast"
ECHO = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        data = self.rfile.read()  # up to the end that the other side tells
        self.wfile.write(data[::-1])
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", 4000), Echo).serve_forever()
"""


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.key) as client:
        yield client


@pytest.fixture
async def session(client: Client) -> AsyncIterator[Session]:
    async with client.create_session() as session:
        assert session.info.network == "none"
        yield session


async def serve_files(session: Session, port: int = 3000, address: str = "127.0.0.1") -> Process:
    """A web server inside, once it listens."""
    process = await session.processes.start(f"exec python3 -m http.server {port} --bind {address}")
    await wait_for_port(session, port)
    return process


async def wait_for_port(session: Session, port: int) -> None:
    async def listens() -> bool:
        return port in [one.port for one in await session.ports.list()]

    await until(listens, f"somebody listens on {port}")


async def test_who_listens(session: Session) -> None:
    assert await session.ports.list() == []
    process = await serve_files(session)
    [found] = await session.ports.list()
    assert (found.port, found.address, found.program) == (3000, "127.0.0.1", "python3")
    assert found.pid == process.info.pid
    await process.kill()
    assert await session.ports.list() == []


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
async def test_a_web_server_inside(session: Session, address: str) -> None:
    await session.write("/workspace/page", "hello from inside")
    await serve_files(session, 3000, address)
    async with session.ports.forward(3000) as there, httpx2.AsyncClient(trust_env=False) as http:
        for _ in range(3):
            assert (await http.get(f"http://{there.host}:{there.port}/page")).text == "hello from inside"
    with pytest.raises(OSError):
        await asyncio.open_connection(there.host, there.port)


async def test_much_data_and_a_half_closed_connection(session: Session) -> None:
    await session.write("/workspace/echo.py", ECHO)
    await session.processes.start("exec python3 echo.py")
    await wait_for_port(session, 4000)
    data = bytes(range(256)) * (1 << 16)
    async with session.ports.forward(4000) as there:
        answers = await asyncio.gather(*(exchange(there, data) for _ in range(3)))
    assert {hashlib.sha256(answer).digest() for answer in answers} == {hashlib.sha256(data[::-1]).digest()}


async def exchange(there: Forward, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(there.host, there.port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_nobody_there(session: Session, daemon: DaemonProcess) -> None:
    async with session.ports.forward(3001) as there:
        reader, writer = await asyncio.open_connection(there.host, there.port)
        assert await reader.read() == b""
        writer.close()
    url = f"{daemon.url}/v1/sessions/{session.id}/ports"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {daemon.key}"}) as http:
        for port, code in (("3001", "nothing_listens"), ("0", "bad_input"), ("x", "bad_input"), ("70000", "bad_input")):
            async with http.ws_connect(f"{url}/{port}/tunnel") as socket:
                assert json.loads((await socket.receive()).data)["error"]["code"] == code


async def test_it_works_again_after_a_restart(mortal: DaemonProcess) -> None:
    async with Client(mortal.url, mortal.key) as client:
        session = await client.create_session()
        await session.write("/workspace/page", "still here")
        await serve_files(session)
        async with session.ports.forward(3000) as there, httpx2.AsyncClient(trust_env=False) as http:
            url = f"http://{there.host}:{there.port}/page"
            assert (await http.get(url)).text == "still here"
            await asyncio.to_thread(mortal.restart)
            assert (await http.get(url)).text == "still here"
        await session.destroy()


async def test_callers_that_vanish_leave_nothing(session: Session, daemon: DaemonProcess) -> None:
    await serve_files(session)
    async with session.ports.forward(3000) as there:

        async def vanish() -> None:
            _reader, writer = await asyncio.open_connection(there.host, there.port)
            writer.write(b"GET /")
            await writer.drain()
            writer.transport.abort()

        await vanish()
        await asyncio.sleep(0)
        before, inside = descriptors_of(daemon.pid), runner_descriptors(daemon, session.id)
        await asyncio.gather(*(vanish() for _ in range(20)))
        await asyncio.to_thread(wait_for, lambda: descriptors_of(daemon.pid) <= before + 4, "the daemon as before")
        await asyncio.to_thread(
            wait_for, lambda: runner_descriptors(daemon, session.id) <= inside + 1, "the runner as before"
        )


async def test_by_the_command_line(session: Session, daemon: DaemonProcess) -> None:
    await session.write("/workspace/page", "by the command line")
    await serve_files(session, 3456)
    env = {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key, "PATH": "/usr/bin:/bin"}
    command = [str(HOLDFAST), "forward", session.id, "3456"]
    running = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE)
    try:
        assert running.stdout is not None
        line = (await asyncio.wait_for(running.stdout.readline(), 30)).decode()
        assert "leads to port 3456" in line
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.get(f"{line.split()[0]}/page")).text == "by the command line"
    finally:
        running.send_signal(2)
        assert await asyncio.wait_for(running.wait(), 30) == 130


def test_the_same_without_async(daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client, client.create_session() as session:
        session.write("/workspace/page", "sync")
        session.processes.start("exec python3 -m http.server 3000")
        wait_for(lambda: [one.port for one in session.ports.list()] == [3000], "the server listens")
        with session.ports.forward(3000) as there:
            assert httpx2.get(f"http://{there.host}:{there.port}/page", trust_env=False).text == "sync"


@pytest.mark.parametrize("path", ["/terminal?rows=0", "/terminal?offset=-1"])
async def test_a_wrong_query_is_told_in_words(daemon: DaemonProcess, session: Session, path: str) -> None:
    """And not as a refused handshake, which looks as if a proxy had sent it."""
    url = f"{daemon.url}/v1/sessions/{session.id}{path}"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {daemon.key}"}) as http,
        http.ws_connect(url) as socket,
    ):
        told = await socket.receive_json()
    assert told["error"]["code"] == "bad_input"
    assert told["error"]["request_id"]
