"""Requests to a server, over connections that a sandbox would give."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from holdfast.agents.base import Place, Sandbox
from holdfast.agents.http import HttpReply, Server, ServerSentEvent, ask, events, hold_post
from holdfast.errors import AgentDown, AgentFailed, NothingListens
from holdfast.link.link import Stream

pytestmark = pytest.mark.anyio

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ports:
    """As a sandbox's, on loopback."""

    @contextlib.asynccontextmanager
    async def dial(self, _session_id: str, port: int) -> AsyncIterator[Stream]:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            raise NothingListens("nobody") from error
        try:
            yield reader, writer
        finally:
            writer.close()


class Box:
    ports = Ports()


PLACE = Place("ses_1", cast(Sandbox, Box()))


@contextlib.asynccontextmanager
async def served(answer: bytes, *, hang: bool = False) -> AsyncGenerator[tuple[Server, list[bytes]], None]:
    """A server that answers everything so, and what it was asked."""
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        asked.append(head + await reader.readexactly(int(length.partition(b":")[2])))
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
            if hang:
                await reader.read()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield Server(server.sockets[0].getsockname()[1], "Bearer T"), asked


def response(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_a_request_and_its_answer() -> None:
    async with served(response(b'{"a": [1]}', status="201 Created")) as (server, asked):
        reply = await ask(PLACE, server, "POST", "/v1/x?y=z", {"b": "ü"}, seconds=10)
    assert (reply.status, reply.fields) == (201, {"a": [1]})
    assert asked[0].startswith(b"POST /v1/x?y=z HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer T\r\n" in asked[0]
    assert asked[0].endswith(b'{"b": "\\u00fc"}')


async def test_an_answer_in_pieces_and_one_of_nothing() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    async with served(head + b"4\r\ntrue\r\n0\r\n\r\n") as (server, _):
        assert await ask(PLACE, server, "GET", "/", seconds=10) == HttpReply(200, True)
    async with served(b"HTTP/1.1 204 No Content\r\n\r\n") as (server, _):
        assert await ask(PLACE, server, "GET", "/", seconds=10) == HttpReply(204, None)


async def test_one_that_takes_long_is_held_and_its_answer_checked() -> None:
    def check(reply: HttpReply) -> None:
        raise AgentFailed(f"no: {reply.status}")

    async with served(response(b"{}", status="400 Bad Request")) as (server, asked):
        async with hold_post(PLACE, server, "/x", {"a": 1}, check) as answer:
            with pytest.raises(AgentFailed, match="no: 400"):
                await asyncio.wait_for(answer, 10)
        assert asked[0].startswith(b"POST /x ")
    async with served(b"", hang=True) as (server, _):
        async with hold_post(PLACE, server, "/x", None, check) as answer:
            pass
        assert answer.cancelled()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", b"SSH-2.0-OpenSSH\r\n\r\n"], ids=repr
)
async def test_one_that_breaks_off_is_down(answer: bytes) -> None:
    async with served(answer) as (server, _):
        with pytest.raises(AgentDown):
            await ask(PLACE, server, "GET", "/", seconds=10)


async def test_nobody_there_is_down() -> None:
    async with served(b"") as (server, _):
        pass
    with pytest.raises(AgentDown, match="nobody listens"):
        await ask(PLACE, server, "GET", "/", seconds=10)


async def test_silence_is_down() -> None:
    async with served(b"", hang=True) as (server, _):
        with pytest.raises(AgentDown, match="did not answer GET /x"):
            await ask(PLACE, server, "GET", "/x", seconds=0.05)


@pytest.mark.parametrize("answer", [response(b"<html>", "text/html"), response(b"{")], ids=["page", "torn"])
async def test_what_makes_no_sense_is_a_failure(answer: bytes) -> None:
    async with served(answer) as (server, _):
        with pytest.raises(AgentFailed):
            await ask(PLACE, server, "GET", "/", seconds=10)


async def test_events_are_told_as_they_come() -> None:
    stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n:\n\nid: 7\ndata: {}\n\nid: 8\ndata: x\n\n"
    async with served(stream, hang=True) as (server, asked):
        async with contextlib.aclosing(events(PLACE, server, "/e", after="6")) as told:
            assert [await anext(told) for _ in range(3)] == [
                None,
                ServerSentEvent("7", "{}"),
                ServerSentEvent("8", "x"),
            ]
        assert b"\r\nlast-event-id: 6\r\n" in asked[0]


async def test_a_stream_that_ends_is_down() -> None:
    async with served(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:\r\n") as (server, _):
        with pytest.raises(AgentDown):
            assert [told async for told in events(PLACE, server, "/e")] == []


async def test_a_stream_that_is_refused_is_a_failure() -> None:
    async with served(response(b"{}", status="401 Unauthorized")) as (server, _):
        with pytest.raises(AgentFailed, match="401"):
            await anext(events(PLACE, server, "/e"))
