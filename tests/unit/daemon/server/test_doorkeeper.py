"""Half-open requests, slow ones, and too many are closed in time, on a real server; what is long and well stays."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from holdfast.api.edge.caller import admit
from holdfast.daemon.server import doorkeeper
from holdfast.daemon.server.doorkeeper import Doorkeeper, DoorSettings

pytestmark = pytest.mark.anyio

GET = b"GET /now HTTP/1.1\r\nhost: x\r\n\r\n"
QUICK = DoorSettings(
    head_seconds=0.3, body_seconds=0.3, idle_seconds=0.3, max_connections=8, max_connections_per_peer=8
)
KEYED = ("/stream", "/read", "/flood")
"""What only who has a key is given here."""
LONG = 1.5
"""Several times as long as anything may take."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    if scope["path"] in KEYED:
        admit(scope)
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5):
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
            await asyncio.sleep(LONG / 5)
        await send({"type": "http.response.body", "body": b"end"})
        return
    size = 0
    if scope["path"] == "/read":
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            more = message["more_body"]
    if scope["path"] == "/flood":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
    body = bytes(1 << 20) if scope["path"] == "/big" else str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served(settings: DoorSettings = QUICK) -> AsyncIterator[int]:
    door = Doorkeeper(settings)
    config = uvicorn.Config(
        app, http=door.protocol(), host="127.0.0.1", port=0, lifespan="off", log_config=None, timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for it
        await asyncio.sleep(0.01)
    door.start()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        door.stop()
        server.should_exit = server.force_exit = True
        await serving


class Caller:
    """A connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, port: int, *pieces: bytes) -> "Caller":
        caller = cls(*await asyncio.open_connection("127.0.0.1", port))
        for piece in pieces:
            caller.writer.write(piece)
        return caller

    async def rest(self) -> bytes:
        """All until it is hung up on."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def refusal(self) -> tuple[int, str]:
        head, _, body = (await self.rest()).rpartition(b"\r\n\r\n")
        return int(head.split(b"HTTP/1.1 ")[-1][:3]), json.loads(body)["error"]["code"]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(doorkeeper, "LEAVING_SECONDS", 0.5)


@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n", b"GET", b"GET /now HTTP/1.1\r\nhost: x\r\nx:"])
async def test_a_head_that_does_not_come(sent: bytes) -> None:
    async with served() as port:
        assert await (await Caller.dial(port, sent)).refusal() == (408, "request_timeout")
        assert await (await Caller.dial(port, GET, sent)).rest()  # also after a good one


async def test_a_head_that_drips() -> None:
    async with served() as port:
        caller = await Caller.dial(port, b"GET /now HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                caller.writer.write(b"a: b\r\n")
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        try:
            assert await caller.refusal() == (408, "request_timeout")
        finally:
            dripping.cancel()


@pytest.mark.parametrize("length", [b"content-length: 100", b"transfer-encoding: chunked"])
async def test_a_body_that_stops(length: bytes) -> None:
    async with served() as port:
        caller = await Caller.dial(port, b"POST /read HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % length, b"5\r\nhello\r\n")
        assert await caller.refusal() == (408, "request_timeout")


async def test_a_slow_body_that_comes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "LEAST_BODY_BYTES", 5)
    async with served() as port:
        caller = await Caller.dial(port, b"POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        for _ in range(20):
            caller.writer.write(b"hello")
            await asyncio.sleep(LONG / 20)
        assert (await caller.rest()).endswith(b"\r\n\r\n100")


async def test_an_answer_before_the_body_leaves_nothing_open() -> None:
    async with served() as port:
        caller = await Caller.dial(port, b"POST /now HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        caller.writer.write(b"0123456789")
        assert await caller.rest() == b"0"


async def test_streams_and_websockets_stay() -> None:
    async with served() as port, connect(f"ws://127.0.0.1:{port}/") as socket:
        stream = await Caller.dial(port, b"GET /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert b"end" in await stream.rest()
        await socket.send("still here")
        assert await socket.recv() == "still here"


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"a%d: b\r\n" % number for number in range(50_000)),
        b"a: " + b"b" * 100_000 + b"\r\n",
        b"a: b" * 100_000,
        b"".join(b"a%d: %b\r\n" % (number, b"b" * 1000) for number in range(90)),
    ],
    ids=["many", "one that is long", "one without an end", "long altogether"],
)
async def test_a_head_that_is_too_large(head: bytes) -> None:
    async with served() as port:
        caller = await Caller.dial(port, b"GET /now HTTP/1.1\r\n", head, b"\r\n")
        assert await caller.refusal() == (431, "head_too_large")
        caller = await Caller.dial(port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
        assert await caller.refusal() == (431, "head_too_large")


async def test_what_is_no_http() -> None:
    async with served() as port:
        assert await (await Caller.dial(port, b"\x16\x03\x01 hello\r\n\r\n")).refusal() == (400, "bad_request")


@pytest.mark.parametrize("which", ["max_connections", "max_connections_per_peer"])
async def test_who_comes_last_gets_in_where_the_others_only_wait(which: str) -> None:
    patient = replace(DoorSettings(), **{which: 8})  # type: ignore[arg-type]
    async with served(patient) as port:
        waiting = [await Caller.dial(port, b"GET /now") for _ in range(20)]
        for _ in range(5):
            caller = await Caller.dial(port, GET)
            assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await waiting[0].rest() == b"", "the oldest has made room"


async def test_what_is_under_way_makes_no_room() -> None:
    async with served(DoorSettings(max_connections=4)) as port:
        busy = [
            await Caller.dial(port, b"GET /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n") for _ in range(4)
        ]
        for one in busy:
            await one.reader.readuntil(b"more")
        assert await (await Caller.dial(port, GET)).refusal() == (503, "too_many_connections")
        assert all([b"end" in await one.rest() for one in busy])


@pytest.mark.parametrize("which", ["max_connections", "max_connections_per_peer"])
async def test_strangers_who_do_not_read_what_they_asked_for_make_room(which: str) -> None:
    """Several requests at once: the second answer waits for somebody to read the first, so something is under way."""
    async with served(replace(DoorSettings(), **{which: 8})) as port:  # type: ignore[arg-type]
        deaf = [await Caller.dial(port, b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n" * 40) for _ in range(8)]
        for one in deaf:
            await one.reader.readuntil(b"\r\n\r\n")
        caller = await Caller.dial(port, GET)
        try:
            assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        finally:
            for one in deaf:
                one.writer.transport.abort()


async def test_what_is_sent_with_a_key_makes_no_room_for_strangers() -> None:
    async with served(DoorSettings(max_connections=4)) as port:
        upload = await Caller.dial(port, b"POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n01234")
        await asyncio.sleep(0.2)
        strangers = [await Caller.dial(port, b"GET /now") for _ in range(20)]
        assert await strangers[0].rest() == b""
        upload.writer.write(b"56789")
        assert (await upload.reader.readuntil(b"\r\n\r\n10")).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "UNREAD_SECONDS", 0.5)
    async with served() as port:
        caller = await Caller.dial(port, b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(LONG)  # nobody reads meanwhile; a thousand megabytes wait
        assert len(await caller.rest()) < 500 << 20
