"""Whether a program answers: by its port alone, or by what it says to a GET."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from holdfast.errors import NothingListens
from holdfast.gateway.services import probe
from holdfast.gateway.services.probe import answers
from holdfast.records.services import ServiceSpec
from holdfast.sessions.session import Session
from holdfast.sessions.use.ports import Ports

pytestmark = pytest.mark.anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NOBODY = cast(Session, None)


class Loopback:
    """Ports of a sandbox: those of this machine."""

    async def connect(self, _session: object, port: int) -> Any:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            raise NothingListens from None


async def ask(serve: Serve, ready: str) -> tuple[bool, bytes]:
    """Ask a server; return what came of it, and the request."""
    asked = b""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        if ready != "tcp":
            asked = await reader.readuntil(b"\r\n\r\n")
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        spec = ServiceSpec(name="web", command="x", port=port, ready=ready)
        return await answers(cast(Ports, Loopback()), NOBODY, spec), asked


def say(*pieces: bytes) -> Serve:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return serve


async def test_a_port_that_accepts_is_enough() -> None:
    assert (await ask(say(), "tcp"))[0]
    spec = ServiceSpec(name="web", command="x", port=1)
    assert not await answers(cast(Ports, Loopback()), NOBODY, spec)


@pytest.mark.parametrize(
    ("pieces", "is_ready"),
    [
        ((b"HTTP/1.1 200 OK\r\n\r\n",), True),
        ((b"HTTP/1.0 204 No Content\r\n",), True),
        ((b"HTT", b"P/1.1 2", b"00 OK\r\n\r\n"), True),
        ((b"HTTP/1.1 302 Found\r\n\r\n",), False),
        ((b"HTTP/1.1 503 Not yet\r\n\r\n",), False),
        ((b"HTTP/1.1 2000 OK\r\n\r\n",), False),
        ((b"SSH-2.0-something\r\n",), False),
        ((b"x" * 100_000,), False),
        ((), False),
    ],
)
async def test_what_it_says_to_a_get(pieces: tuple[bytes, ...], is_ready: bool) -> None:
    found, asked = await ask(say(*pieces), "/healthz?a=1")
    assert found is is_ready
    assert asked.startswith(b"GET /healthz?a=1 HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_one_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 0.1)

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert (await ask(silent, "/"))[0] is False
