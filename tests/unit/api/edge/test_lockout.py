"""What takes long ends with its key: WebSockets and streams stop at their next message, plain answers do not."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import httpx2
import pytest
from fastapi import FastAPI, WebSocket
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from holdfast.api.edge.access import Access
from holdfast.api.edge.auth import Guard
from holdfast.api.edge.lockout import PLAIN_BYTES
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import ROOT, Caller
from holdfast.callers.types import Scope as KeyScope
from holdfast.gateway.links import Links
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from support.api_host import KEY, ApiHost
from support.waiting import until

pytestmark = pytest.mark.anyio

PATH = "/v1/sessions/{session_id}/terminal"
ACCESS = Access({f"WS {PATH}": KeyScope.USE, "GET /v1/stream": KeyScope.READ})
NO_TICKETS = cast(Links, None)


class Socket:
    """The server's side of one WebSocket: what the client sends, and what it gets."""

    def __init__(self, path: str, key: str | None, *, replies: bool = True) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.inbox.put_nowait({"type": "websocket.connect"})
        headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
        extensions: dict[str, object] = {"websocket.http.response": {}} if replies else {}
        self.scope: Scope = {
            "type": "websocket",
            "path": path,
            "headers": headers,
            "query_string": b"",
            "subprotocols": [],
            "extensions": extensions,
        }

    async def send(self, message: Message) -> None:
        assert not any(one["type"] == "websocket.close" for one in self.sent), "something after the end"
        self.sent.append(message)

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.sent]


@pytest.fixture
def sessions(host: ApiHost) -> SessionService:
    return host.sessions


@pytest.fixture
def guarded(keys: KeyRing, sessions: SessionService) -> Guard:
    app = FastAPI()

    @app.websocket(PATH)
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    @app.websocket(PATH.replace("terminal", "unknown"))
    async def unknown(socket: WebSocket) -> None:
        await socket.accept()

    return Guard(app, keys=keys, sessions=sessions, access=ACCESS, links=NO_TICKETS)


async def ada(keys: KeyRing, sessions: SessionService, scope: KeyScope = KeyScope.USE) -> tuple[str, str]:
    """A key of ada's, and the path to a terminal in a session of hers."""
    _, text = await keys.add("ada", scope, owner=None, max_sessions=None)
    caller = keys.caller(text.encode())
    assert caller is not None
    session = await sessions.create(CreateRequest(), idempotency_key=None, caller=caller)
    return text, PATH.replace("{session_id}", session.id)


def text_from_client(text: str) -> Message:
    return {"type": "websocket.receive", "text": text}


async def test_a_websocket_of_a_removed_key_hears_nothing_more(
    keys: KeyRing, sessions: SessionService, guarded: Guard
) -> None:
    key, path = await ada(keys, sessions)
    socket = Socket(path, key)
    call = asyncio.create_task(guarded(socket.scope, socket.inbox.get, socket.send))
    socket.inbox.put_nowait(text_from_client("one"))
    await until(lambda: len(socket.sent) == 2, "the echo comes back")
    await keys.remove("ada")
    socket.inbox.put_nowait(text_from_client("two"))
    await asyncio.wait_for(call, 30)
    assert socket.sent[1:] == [
        {"type": "websocket.send", "text": "one"},
        {"type": "websocket.close", "code": 1008, "reason": "unauthorized"},
    ]


async def test_what_a_websocket_of_a_removed_key_says_is_not_sent(keys: KeyRing, sessions: SessionService) -> None:
    key, path = await ada(keys, sessions)
    failed: list[BaseException] = []

    async def talker(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        await keys.remove("ada")
        for _ in range(2):
            try:
                await send({"type": "websocket.send", "text": "secret"})
            except ClientDisconnect as error:
                failed.append(error)

    socket = Socket(path, key)
    await Guard(talker, keys=keys, sessions=sessions, access=ACCESS, links=NO_TICKETS)(
        socket.scope, socket.inbox.get, socket.send
    )
    assert socket.kinds() == ["websocket.accept", "websocket.close"]
    assert len(failed) == 2


@pytest.mark.parametrize(
    ("scope", "path", "status"),
    [
        (KeyScope.READ, None, 403),
        (KeyScope.USE, PATH.replace("{session_id}", "ses_none"), 404),
        (KeyScope.USE, "/v1/sessions/ses_none/unknown", 404),
    ],
)
@pytest.mark.parametrize("replies", [True, False])
async def test_a_websocket_is_refused_before_it_is_accepted(
    keys: KeyRing,
    sessions: SessionService,
    guarded: Guard,
    scope: KeyScope,
    path: str | None,
    status: int,
    replies: bool,
) -> None:
    key, own = await ada(keys, sessions, scope)
    socket = Socket(path or own, key, replies=replies)
    await guarded(socket.scope, socket.inbox.get, socket.send)
    if replies:
        assert socket.kinds() == ["websocket.http.response.start", "websocket.http.response.body"]
        assert socket.sent[0]["status"] == status
    else:
        assert socket.kinds() == ["websocket.close"]
        assert socket.sent[0]["code"] == 1008


async def test_a_websocket_without_a_key_is_refused_and_with_the_root_key_is_not(
    keys: KeyRing, sessions: SessionService, guarded: Guard
) -> None:
    _, path = await ada(keys, sessions)
    stranger = Socket(path, None)
    await guarded(stranger.scope, stranger.inbox.get, stranger.send)
    assert stranger.sent[0]["status"] == 401
    root = Socket(path, KEY)
    root.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await guarded(root.scope, root.inbox.get, root.send)
    assert root.kinds() == ["websocket.accept"]


async def test_what_is_in_the_table_needs_a_key_wherever_it_is(keys: KeyRing, sessions: SessionService) -> None:
    reached: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])

    guard = Guard(
        app, keys=keys, sessions=sessions, access=Access({"WS /p/{session_id}": KeyScope.USE}), links=NO_TICKETS
    )
    for path, key in (("/p/ses_x", None), ("/p/ses_x", KEY), ("/not-ours", None)):
        socket = Socket(path, key)
        await guard(socket.scope, socket.inbox.get, socket.send)
    assert reached == ["/p/ses_x", "/not-ours"]


def two_parts(keys: KeyRing, headers: dict[str, str]) -> FastAPI:
    """An application whose answer comes in two parts; ada's key is removed between them."""
    app = FastAPI()

    @app.get("/v1/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one"
            await keys.remove("ada")
            yield b"two"

        return StreamingResponse(parts(), headers=headers)

    return app


async def get_stream(guard: Guard, key: str, sent: list[bytes]) -> None:
    async def catching(scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            sent.append(message.get("body", b""))
            await send(message)

        await guard(scope, receive, note)

    transport = httpx2.ASGITransport(catching)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
        await client.get("/v1/stream", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("headers", [{}, {"content-length": str(PLAIN_BYTES + 1)}], ids=["a stream", "a large file"])
async def test_a_stream_of_a_removed_key_breaks_off(
    keys: KeyRing, sessions: SessionService, headers: dict[str, str]
) -> None:
    _, key = await keys.add("ada", KeyScope.READ, owner=None, max_sessions=None)
    guard = Guard(two_parts(keys, headers), keys=keys, sessions=sessions, access=ACCESS, links=NO_TICKETS)
    sent: list[bytes] = []
    with pytest.raises(ClientDisconnect):
        await get_stream(guard, key, sent)
    assert sent == [b"", b"one"]


async def test_a_plain_answer_in_pieces_still_goes_out(keys: KeyRing, sessions: SessionService) -> None:
    _, key = await keys.add("ada", KeyScope.READ, owner=None, max_sessions=None)
    app = two_parts(keys, {"content-length": "6"})
    sent: list[bytes] = []
    await get_stream(Guard(app, keys=keys, sessions=sessions, access=ACCESS, links=NO_TICKETS), key, sent)
    assert b"".join(sent) == b"onetwo"


async def test_the_root_key_is_always_known(keys: KeyRing) -> None:
    assert keys.knows(ROOT)
    assert not keys.knows(Caller("key_x", "x", KeyScope.USE, "x", None))
