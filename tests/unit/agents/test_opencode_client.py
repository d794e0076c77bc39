"""HTTP over a stream: requests to a server of the test's own, on loopback instead of in a sandbox."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.agents.base import Place, Sandbox
from holdfast.agents.opencode import client
from holdfast.agents.opencode.client import Address, Reply
from holdfast.errors import AgentDown, AgentFailed, NothingListens
from holdfast.link.link import Stream

pytestmark = pytest.mark.anyio

PASSWORD = "geheim"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class Loopback:
    @contextlib.asynccontextmanager
    async def dial(self, _session_id: str, port: int) -> AsyncIterator[Stream]:
        if port == 1:
            raise NothingListens("nobody")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


PLACE = Place("ses_1", cast(Sandbox, SimpleNamespace(ports=Loopback())))


async def asked(answer: bytes, *, seconds: float = 10.0, body: client.Document = None) -> tuple[Reply, bytes]:
    """The reply, and what the server was sent. An answer of nothing is none for ever."""
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readuntil(b"\r\n\r\n"))
        length = int(bytes(got).lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        got.extend(await reader.readexactly(length))
        if answer:
            writer.write(answer)
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = Address(server.sockets[0].getsockname()[1], "opencode", PASSWORD)
        reply = await client.ask(PLACE, address, "POST", "/session", body, seconds=seconds)
    return reply, bytes(got)


async def test_a_request_and_its_answer() -> None:
    reply, got = await asked(JSON + b'content-length: 12\r\n\r\n{"id":"ses"}', body={"x": "ü"})
    assert reply == Reply(200, {"id": "ses"})
    assert got.startswith(b"POST /session HTTP/1.1\r\n")
    assert b"authorization: Basic b3BlbmNvZGU6Z2VoZWlt\r\n" in got
    assert got.endswith(b'{"x": "\\u00fc"}')


async def test_pieces_and_nothing_at_all() -> None:
    chunked = JSON + b"transfer-encoding: chunked\r\n\r\n4\r\ntrue\r\n0\r\n\r\n"
    assert (await asked(chunked))[0].content is True
    assert (await asked(b"HTTP/1.1 204 No Content\r\n\r\n"))[0] == Reply(204, None)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>", AgentFailed),
        (JSON + b"content-length: 1\r\n\r\n{", AgentFailed),
        (JSON + b"content-length: 99\r\n\r\n{", AgentDown),
        (b"SSH-2.0-OpenSSH\r\n\r\n", AgentDown),
    ],
)
async def test_answers_that_are_none(answer: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await asked(answer)


async def test_silence_has_an_end() -> None:
    with pytest.raises(AgentDown, match="did not answer"):
        await asked(b"", seconds=0.1)


async def test_nobody_there() -> None:
    with pytest.raises(AgentDown):
        await client.ask(PLACE, Address(1, "opencode", PASSWORD), "GET", "/", seconds=5)
