"""Server-sent events: their form, the pauses between them, and all the ways in which a stream can end."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from holdfast.api.wire import sse
from holdfast.api.wire.sse import EventStream, ServerEvent
from holdfast.errors import SandboxLost
from support.waiting import until

pytestmark = pytest.mark.anyio

SCOPE = {"type": "http", "holdfast.request_id": "req_1"}


class Client:
    """What a server would have sent to it; it stays until told to leave."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.leaves = asyncio.Event()

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.got).decode()


async def some(*kinds: str) -> AsyncGenerator[ServerEvent, None]:
    for number, kind in enumerate(kinds):
        yield ServerEvent(kind, f'{{"n":{number}}}', str(number))


async def test_the_form() -> None:
    client = Client()
    reply = await EventStream.begin(some("a", "b"))
    await reply(SCOPE, client.receive, client.send)
    assert client.text == 'event: a\nid: 0\ndata: {"n":0}\n\nevent: b\nid: 1\ndata: {"n":1}\n\n'
    start, *_, end = client.got
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-store" and b"content-length" not in headers
    assert end == {"type": "http.response.body", "body": b""}


async def test_no_events_at_all() -> None:
    client = Client()
    reply = await EventStream.begin(some())
    await reply(SCOPE, client.receive, client.send)
    assert client.text == ""


async def test_a_comment_now_and_then_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.01)
    client, go_on = Client(), asyncio.Event()

    async def slow() -> AsyncGenerator[ServerEvent, None]:
        yield ServerEvent("a", "{}")
        await go_on.wait()
        yield ServerEvent("b", "{}")

    serving = asyncio.create_task(EventStream(slow())(SCOPE, client.receive, client.send))
    await until(lambda: client.text.count(": keep-alive\n\n") >= 3, "it is kept alive")
    go_on.set()
    await serving
    assert client.text.startswith("event: a\n") and client.text.endswith("event: b\ndata: {}\n\n")


async def test_a_failure_before_the_first_event_is_raised_and_closes() -> None:
    closed = False

    async def broken() -> AsyncGenerator[ServerEvent, None]:
        nonlocal closed
        try:
            raise SandboxLost("gone")
            yield
        finally:
            closed = True

    with pytest.raises(SandboxLost):
        await EventStream.begin(broken())
    assert closed


async def test_a_failure_later_is_told_as_the_last_event() -> None:
    client = Client()

    async def broken() -> AsyncGenerator[ServerEvent, None]:
        yield ServerEvent("a", "{}")
        raise SandboxLost("gone")

    await EventStream(broken())(SCOPE, client.receive, client.send)
    last = client.text.split("\n\n")[1]
    assert last == 'event: error\ndata: {"error":{"code":"sandbox_lost","message":"gone","request_id":"req_1"}}'


@pytest.mark.parametrize("moment", ["between", "never begun"])
async def test_a_client_that_leaves_closes_the_events(moment: str) -> None:
    client, begun, closed = Client(), asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncGenerator[ServerEvent, None]:
        try:
            begun.set()
            yield ServerEvent("a", "{}")
            await asyncio.Event().wait()
        finally:
            closed.set()

    before = asyncio.all_tasks()
    if moment == "never begun":
        client.leaves.set()
    serving = asyncio.create_task(EventStream(endless())(SCOPE, client.receive, client.send))
    if moment == "between":
        await begun.wait()
        client.leaves.set()
    async with asyncio.timeout(30):
        await serving
    assert closed.is_set() or not begun.is_set()
    assert asyncio.all_tasks() == before
