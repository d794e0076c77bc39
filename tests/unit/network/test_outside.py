"""The daemon's own clients: the address of a connection is checked, whatever its name or number was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from holdfast.network.names import Names
from holdfast.network.outside import Outside
from support.servers.name_server import NameServer, name_server

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def client(names: NameServer | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    outside = Outside(Names(servers=[names.place]) if names else None)
    async with aiohttp.ClientSession(connector=outside.connector()) as session:
        yield session
    await outside.close()


@pytest.mark.parametrize("host", ["169.254.169.254", "168.63.129.16", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
async def test_what_nobody_may_reach(host: str) -> None:
    async with client() as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="nobody may reach"):
            await asyncio.wait_for(session.get(f"http://{host}/"), 5)


async def test_a_name_that_leads_there() -> None:
    """The check is made when the name has been looked up: DNS can say what it likes."""
    async with name_server({"hooks.test": "169.254.169.254"}) as server, client(server) as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="nobody may reach"):
            await asyncio.wait_for(session.get("http://hooks.test/"), 5)


async def test_a_name_that_only_other_sources_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library asks mDNS and others, too; for names of the configuration it is asked last."""
    asked: list[str] = []

    def ask(host: str) -> list[object]:
        asked.append(host)
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr("holdfast.network.names._ask_system", ask)
    async with name_server({}) as server, client(server) as session:
        with pytest.raises(aiohttp.ClientConnectorDNSError):
            await asyncio.wait_for(session.get("http://printer.test/"), 5)
    assert asked == ["printer.test"]


async def test_internal_addresses_are_for_the_operator_to_say() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, client() as session:
        port = server.sockets[0].getsockname()[1]
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            assert response.status == 204
