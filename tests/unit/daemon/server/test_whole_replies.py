"""Replies leave in one piece, on a real server; and nothing is held back, lost or put out of order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from holdfast.daemon.server.whole_replies import Joining, WholeReplies

pytestmark = pytest.mark.anyio


class Wire(asyncio.Transport):
    """Keeps what is written, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return f"the real one's {name}"


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


async def test_a_head_waits_for_its_body() -> None:
    wire = Wire()
    joining = Joining(wire)
    joining.write(HEAD)
    joining.write(b"body")
    joining.write(b"more")
    assert wire.pieces == [HEAD + b"body", b"more"]
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD + b"body", b"more"], "and is not sent again"


async def test_a_head_without_a_body_is_not_held_back() -> None:
    wire = Wire()
    Joining(wire).write(HEAD)
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD]


async def test_two_heads_in_a_row_keep_their_order() -> None:
    wire = Wire()
    joining = Joining(wire)
    joining.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    joining.write(HEAD)
    joining.write(b"body")
    await asyncio.sleep(0)
    assert b"".join(wire.pieces) == b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"body"


async def test_a_large_body_is_not_copied() -> None:
    wire = Wire()
    joining = Joining(wire)
    joining.write(HEAD)
    joining.write(b"x" * (1 << 20))
    assert wire.pieces[0] == HEAD
    assert len(wire.pieces[1]) == 1 << 20


async def test_closing_sends_what_waits() -> None:
    wire = Wire()
    joining = Joining(wire)
    joining.write(HEAD)
    joining.close()
    assert wire.pieces == [HEAD]
    assert joining.is_closing()
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD]


async def test_all_else_is_the_real_transports() -> None:
    assert Joining(Wire()).get_extra_info("peername") == "the real one's peername"  # type: ignore[operator]  # delegated


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    status, body = (204, b"") if scope["path"] == "/nothing" else (200, b"hello")
    headers = [] if status == 204 else [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    config = uvicorn.Config(app, port=0, http=WholeReplies, lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()


async def test_on_a_real_server() -> None:
    async with serving() as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for path, end in (("/", b"\r\n\r\nhello"), ("/nothing", b"\r\n\r\n"), ("/", b"\r\n\r\nhello")):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            reply = await reader.read(65536)
            assert reply.startswith(b"HTTP/1.1 20")
            assert reply.endswith(end), "all of it in one read"
        writer.close()
        await writer.wait_closed()
