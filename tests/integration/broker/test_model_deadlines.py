"""A program in a sandbox that does not go on, in whatever part of a request, is hung up on; who goes on is served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from holdfast.broker.guard import Deadlines
from holdfast.vocabulary.models import Wire, placeholder
from support.servers.model_door import Door, model_door
from support.servers.model_server import Huge, Silent, model_server
from support.waiting import until

pytestmark = pytest.mark.anyio

LONG = 1000.0
PATIENCE = 60.0
KEY = f"authorization: Bearer {placeholder('webdefault')}\r\n".encode()
LIST = b"GET /llm/one/v1/models HTTP/1.1\r\nhost: a\r\n" + KEY


def only(**short: float) -> Deadlines:
    """One deadline that comes soon, and all others much later than the test ends."""
    seconds = dict.fromkeys(("head_seconds", "body_seconds", "idle_seconds", "unread_seconds"), LONG)
    return Deadlines(**(seconds | short))


@asynccontextmanager
async def dialled(door: Door) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(door.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 16)
    try:
        async with asyncio.timeout(PATIENCE):
            yield reader, writer
    finally:
        writer.transport.abort()


async def hung_up(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        return


async def answered(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"chunked" in head.lower():
        return head + await reader.readuntil(b"0\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head + await reader.readexactly(int(size.partition(b":")[2]))


@pytest.mark.parametrize("sent", [b"", b"GET /llm", LIST, LIST + b"x: "], ids=["nothing", "line", "headers", "half"])
async def test_a_head_that_never_ends(sent: bytes) -> None:
    async with (
        model_server() as server,
        model_door(server, deadlines=only(head_seconds=0.3)) as door,
        dialled(door) as (reader, writer),
    ):
        writer.write(sent)
        await hung_up(reader)


async def test_a_head_that_comes_letter_by_letter_is_not_waited_for_longer() -> None:
    async with (
        model_server() as server,
        model_door(server, deadlines=only(head_seconds=0.5)) as door,
        dialled(door) as (reader, writer),
    ):
        writer.write(LIST)
        end = asyncio.create_task(hung_up(reader))
        while not end.done():
            writer.write(b"x")
            await asyncio.wait([end], timeout=0.05)
        await end


async def test_the_second_head_of_a_connection_that_never_ends() -> None:
    async with (
        model_server() as server,
        model_door(server, deadlines=only(head_seconds=0.5)) as door,
        dialled(door) as (reader, writer),
    ):
        writer.write(LIST + b"\r\n")
        assert b"200 OK" in await answered(reader)
        writer.write(LIST)
        await hung_up(reader)


async def test_a_body_that_stops_coming() -> None:
    async with (
        model_server() as server,
        model_door(server, deadlines=only(body_seconds=0.3)) as door,
        dialled(door) as (reader, writer),
    ):
        head = b"POST /llm/one/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n" + KEY
        writer.write(head + b'\r\n{"model":"m1",')
        await hung_up(reader)
        assert not server.seen


async def test_a_connection_that_is_kept_for_nothing() -> None:
    async with (
        model_server() as server,
        model_door(server, deadlines=only(idle_seconds=0.3)) as door,
        dialled(door) as (reader, writer),
    ):
        writer.write(LIST + b"\r\n")
        assert b"200 OK" in await answered(reader)
        assert await reader.read(1) == b""


async def test_an_answer_that_nobody_reads() -> None:
    async with model_server() as server, model_door(server, deadlines=only(unread_seconds=0.3)) as door:
        server.break_("one", Huge(64 << 20))
        async with dialled(door) as (reader, writer):
            body = b'{"model":"m1","stream":true,"messages":[{"role":"user","content":"say hello"}]}'
            head = b"POST /llm/one/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n" % len(body)
            writer.write(head + KEY + b"\r\n" + body)
            await until(lambda: server.open == 1, "it is being answered")
            await until(lambda: server.open == 0, "the provider is hung up on, too")
            await until(lambda: len(door.books.calls) == 1, "what it cost is written down")
            await hung_up(reader)


@pytest.mark.parametrize("wire", list(Wire))
async def test_a_model_may_think_for_longer_than_any_of_them(wire: Wire) -> None:
    short = Deadlines(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2, unread_seconds=0.2)
    gate = asyncio.Event()
    async with model_server() as server, model_door(server, wire, deadlines=short) as door:
        server.break_("one", Silent(gate), times=1)
        asking = asyncio.create_task(door.ask("say hello"))
        await until(lambda: server.open == 1, "it has been asked")
        await asyncio.wait([asking], timeout=1.0)
        assert not asking.done()
        gate.set()
        assert (await asking).status == 200
