"""The SDK's followers against a server that cuts, repeats and stays away: each event comes once."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from holdfast.errors import BadInput, ThreadNotFound, Unavailable
from holdfast.sdk import Client, Thread

pytestmark = pytest.mark.anyio

AT = "2026-01-01T00:00:00.000000Z"
MESSAGE: dict[str, Any] = {
    "id": "m1",
    "channel": "default",
    "author": None,
    "text": "x",
    "attachments": [],
    "model": None,
    "mode": "queue",
    "status": "queued",
    "turn_id": None,
    "after": 2,
    "at": AT,
    "of a newer daemon": 1,
}
TURN: dict[str, Any] = {
    "id": "trn_1",
    "channel": "default",
    "state": "ended",
    "prompt": "x",
    "accepted": True,
    "attempts": 1,
    "reason": "end_turn",
    "error": None,
    "artifacts": [],
    "answer": "one two",
    "reverted": False,
    "created_at": AT,
    "started_at": AT,
    "ended_at": AT,
}


def event(seq: int, kind: str, turn_id: str | None = "trn_1", **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "turn_id": turn_id, "channel": "default", "at": AT, "data": data}


class Server:
    """What it is asked for, and what it says: one list of events per connection."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.connections: list[list[dict[str, Any]]] = []
        self.pages: list[dict[str, Any]] = []
        self.message = dict(MESSAGE)
        self.refuse_after = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path_qs.removeprefix("/v1/threads/k%3A1").removeprefix("/v1/threads/k:1")
        self.asked.append(f"{request.method} {path}")
        if "/events/stream" in path:
            return await self._stream(request)
        if "/events" in path:
            return web.json_response(self.pages.pop(0))
        if "/messages" in path:
            posted = request.method == "POST"
            return web.json_response({"message": self.message, "turn": None} if posted else self.message)
        return web.json_response(TURN)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if not self.connections and self.refuse_after:
            error = {"code": "thread_not_found", "message": "gone", "request_id": "r"}
            return web.json_response({"error": error}, status=404)
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        events = self.connections.pop(0) if self.connections else None
        if events is None:
            await asyncio.sleep(60)
        for one in events or ():
            text = f"event: thread\nid: {one['seq']}\ndata: {json.dumps(one)}\n\n"
            await reply.write(b": keep-alive\n\n" + text.encode())
        await reply.write(b"event: thread\nid: 99\ndata: {half")
        return reply


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Thread]]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}", "key") as client, asyncio.timeout(60):
            yield server, client.thread("k:1")
    finally:
        await runner.cleanup()


async def test_a_follower_goes_on_after_the_last_one_and_drops_what_is_repeated(server: tuple[Server, Thread]) -> None:
    daemon, thread = server
    daemon.refuse_after = True
    daemon.connections = [[event(1, "a"), event(2, "b")], [], [event(2, "b"), event(3, "c")]]
    seen = []
    with pytest.raises(ThreadNotFound):
        async for one in thread.events():
            seen.append(one.seq)
    assert seen == [1, 2, 3]
    afters = [path.partition("after=")[2] for path in daemon.asked]
    assert afters == ["0", "2", "2", "3"]


async def test_short_pages_of_big_events_are_not_the_end(server: tuple[Server, Thread]) -> None:
    daemon, thread = server
    daemon.pages = [
        {"events": [event(1, "a"), event(2, "b")], "next": 2, "newest": 4},
        {"events": [event(3, "c")], "next": 3, "newest": 4},
        {"events": [event(4, "d")], "next": 4, "newest": 4},
    ]
    assert [one.seq async for one in thread.events(follow=False)] == [1, 2, 3, 4]
    daemon.pages = [{"events": [], "next": 4, "newest": 4}]
    assert [one.seq async for one in thread.events(4, follow=False)] == []


async def test_a_reply_is_its_own_turn_and_nothing_else(server: tuple[Server, Thread]) -> None:
    daemon, thread = server
    daemon.connections = [
        [
            event(3, "message.part.text-delta", "trn_0", text="of another turn"),
            event(4, "message.create", message_id="m0", role="user"),
            event(5, "message.create", message_id="m1", role="user"),
        ],
        [
            event(6, "thread.resolved", None, how="resumed", session_id="s"),
            event(7, "message.part.text-delta", text="one ", message_id="a", part_id="p"),
            event(8, "message.part.text-delta", text="hm", thought=True),
            event(9, "message.part.text-delta", "trn_9", text="of another turn"),
        ],
        [event(10, "message.part.text-delta", text="two"), event(11, "message.finalize", reason="end_turn")],
    ]
    reply = thread.send("x", id="m1")
    assert daemon.asked == []  # nothing is sent before it is asked for
    events = [one async for one in reply]
    assert [one.seq for one in events] == [5, 6, 7, 8, 10, 11]
    assert "".join(one.text for one in events) == "one two"
    result = await reply.result()
    assert (result.text, result.ok, result.turn_id) == ("one two", True, "trn_1")
    assert daemon.asked[0] == "POST /messages"
    assert [path for path in daemon.asked if path.startswith("POST")] == ["POST /messages"]
    assert "after=2" in daemon.asked[1]


async def test_who_has_stopped_to_listen_can_ask_for_the_result(server: tuple[Server, Thread]) -> None:
    daemon, thread = server
    begin = event(3, "message.create", message_id="m1", role="user")
    daemon.connections = [[begin], [begin, event(4, "message.finalize", reason="end_turn")]]
    reply = thread.send("x", id="m1")
    async for _event in reply:
        break
    await reply.aclose()
    assert (await reply.result()).text == "one two"
    assert len([path for path in daemon.asked if path.startswith("POST")]) == 1


async def test_a_message_that_was_taken_back_ends(
    server: tuple[Server, Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, thread = server
    monkeypatch.setattr("holdfast.sdk.threads.thread.LOOK_SECONDS", 0.05)
    reply = await thread.send("x", id="m1")
    assert reply.message.after == 2
    daemon.message["status"] = "canceled"
    result = await reply.result()
    assert (result.reason, result.turn_id, result.text) == ("canceled", None, "")


async def test_where_there_is_no_daemon_it_says_so() -> None:
    async with Client("http://127.0.0.1:9", "key", retries=0) as client:
        thread = client.thread("k:1")
        with pytest.raises(Unavailable):
            await thread.send("x")
        with pytest.raises(Unavailable):
            async with contextlib.aclosing(thread.events()) as events:
                await anext(events)


async def test_what_can_be_no_key_is_refused_before_anything_is_asked() -> None:
    async with Client("http://127.0.0.1:9", "key", retries=0) as client:
        with pytest.raises(BadInput, match="key: 1 to 512 letters"):
            client.thread("bad/key")
