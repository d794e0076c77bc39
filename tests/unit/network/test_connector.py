"""The daemon's own clients: the address of a connection is checked, whatever its name or number was."""

import asyncio

import aiohttp
import pytest

from holdfast.network.connector import connector

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["169.254.169.254", "168.63.129.16", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
async def test_what_nobody_may_reach(host: str) -> None:
    async with aiohttp.ClientSession(connector=connector()) as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="nobody may reach"):
            await asyncio.wait_for(session.get(f"http://{host}/"), 5)


async def test_a_name_that_leads_there() -> None:
    """The check is made when the name has been looked up: DNS can say what it likes."""
    one = connector()

    async def resolve(host: str, port: int, **_options: object) -> list[dict[str, object]]:
        return [{"hostname": host, "host": "169.254.169.254", "port": port, "family": 2, "proto": 0, "flags": 0}]

    one._resolve_host = resolve  # type: ignore[assignment, method-assign]
    async with aiohttp.ClientSession(connector=one) as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="nobody may reach"):
            await asyncio.wait_for(session.get("http://hooks.example/"), 5)


async def test_internal_addresses_are_for_the_operator_to_say() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, aiohttp.ClientSession(connector=connector()) as session:
        port = server.sockets[0].getsockname()[1]
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            assert response.status == 204
