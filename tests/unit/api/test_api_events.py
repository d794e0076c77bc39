"""/v1/events: pages, streams, filters, coming back, and readers that go away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from holdfast.errors import Unavailable
from support.api_host import KEY, ApiHost, open_api
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ApiHost]:
    """Three events have happened, and streams end with what there is."""
    async with open_api(tmp_path) as host:
        await host.tell("created", status="creating")
        await host.tell("active", status="active")
        await host.tell("error", session_id="ses_2", status="error", error="ünïcode\nline")
        host.end_streams()
        yield host


def blocks(text: str) -> list[dict[str, str]]:
    """The events of a stream, field by field."""
    assert text.endswith("\n\n")
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.strip().split("\n\n")]


async def numbers(client: httpx2.AsyncClient, query: str, **headers: str) -> list[str]:
    response = await client.get(f"/v1/events{query}", headers=headers)
    assert response.status_code == 200, response.text
    return [block["id"] for block in blocks(response.text)] if response.text else []


async def test_a_stream(client: httpx2.AsyncClient) -> None:
    response = await client.get("/v1/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    first, second, third = blocks(response.text)
    assert (first["event"], first["id"]) == ("session", "1")
    assert json.loads(first["data"]) == {
        "seq": 1,
        "kind": "created",
        "session_id": "ses_1",
        "thread_id": None,
        "thread_key": None,
        "at": "2023-11-14T22:13:21.250000Z",
        "data": {"status": "creating"},
    }
    assert json.loads(third["data"])["data"]["error"] == "ünïcode\nline"
    assert [one["event"] for one in (second, third)] == ["session", "session"], (
        "never error: that is how a stream fails"
    )


async def test_a_page(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/v1/events", params={"follow": "false", "after": 1, "limit": 1})).json()
    assert [event["seq"] for event in page["events"]] == [2]
    assert (page["next"], page["oldest"], page["newest"]) == (2, 1, 3)
    page = (await client.get("/v1/events?follow=false&after=3")).json()
    assert page == {"events": [], "next": 3, "oldest": 1, "newest": 3}
    assert len((await client.get("/v1/events?follow=false")).json()["events"]) == 3


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["1", "2", "3"]),
        ("?after=0", ["1", "2", "3"]),
        ("?after=1", ["2", "3"]),
        ("?after=3", []),
        ("?kind=error", ["3"]),
        ("?kind=error,created", ["1", "3"]),
        ("?kind=error&kind=active&after=2", ["3"]),
        ("?session_id=ses_2", ["3"]),
        ("?session_id=ses_unknown", []),
        ("?limit=2", ["1", "2"]),
        ("?kind=", ["1", "2", "3"]),
    ],
)
async def test_narrowing_it_down(client: httpx2.AsyncClient, query: str, expected: list[str]) -> None:
    assert await numbers(client, query) == expected


async def test_a_browser_that_comes_back(client: httpx2.AsyncClient) -> None:
    """It sends the URL that it was given, and with it what it has seen."""
    assert await numbers(client, "?after=0", **{"Last-Event-ID": "2"}) == ["3"]
    assert await numbers(client, "?after=2", **{"Last-Event-ID": ""}) == ["1", "2", "3"]


async def test_events_that_are_gone(client: httpx2.AsyncClient, host: ApiHost) -> None:
    assert await host.store.events.prune(1_700_000_003) == 2
    response = await client.get("/v1/events?after=0&limit=1")
    gap, event = blocks(response.text)
    assert gap == {"event": "gap", "id": "2", "data": '{"after":0,"oldest":3}'}
    assert event["id"] == "3"
    assert await numbers(client, "") == ["3"], "who names no number has missed nothing"
    assert await numbers(client, "?after=2") == ["3"]
    assert (await client.get("/v1/events?follow=false&after=0")).json()["oldest"] == 3


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?after=x", "after: "),
        ("?after=-1", "after: "),
        ("?after=99999999999999999999", "after: "),
        ("?after=4", "beyond the newest event, which is 3"),
        ("?after=4&follow=false", "beyond the newest event, which is 3"),
        ("?kind=nonsense", "kind: must be one of created, active, paused"),
        ("?session_id=a/b", "session_id: "),
        ("?session_id=%00", "session_id: "),
        ("?limit=0", "limit: "),
        ("?follow=perhaps", "follow: "),
    ],
)
async def test_bad_input(client: httpx2.AsyncClient, query: str, words: str) -> None:
    response = await client.get(f"/v1/events{query}")
    assert response.status_code == 422
    assert words in response.json()["error"]["message"]


@pytest.mark.parametrize("given", ["x", "1.5", "-1", "٣", "9" * 30, "1 2"])
async def test_an_odd_last_event_id(client: httpx2.AsyncClient, given: str) -> None:
    response = await client.get("/v1/events", headers={b"last-event-id": given.encode()})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "bad_input")
    assert "Last-Event-ID" in response.json()["error"]["message"]


async def test_no_key_no_events(stranger: httpx2.AsyncClient) -> None:
    assert (await stranger.get("/v1/events")).status_code == 401


async def test_a_database_that_is_away_is_an_error_reply(
    client: httpx2.AsyncClient, host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(**_query: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(host.store.events, "page", away)
    response = await client.get("/v1/events")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")


# -- a real server on a real store -----------------------------------------------------------------------------------


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=2))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server._serve([listener]))
        await until(lambda: server.started, "it serves")
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /v1/events?after=0 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n" % KEY.encode()
    )
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_client_that_vanishes_leaves_nothing_behind(tmp_path: Path) -> None:
    """In the middle of waiting, in all ways to go: no task, no reader, and the others are told as before."""
    async with open_api(tmp_path) as host, serving(host.app) as port:
        feed, store = host.events, host.store
        reader, writer = await connect(port)
        await until(lambda: feed.waiting == 1, "the one that stays waits")
        tasks = asyncio.all_tasks()
        for n in range(20):
            _, leaving = await connect(port)
            await until(lambda: feed.waiting == 2, "it waits too")
            if n % 2:
                leaving.transport.abort()
            else:
                leaving.close()
                with suppress(ConnectionError):
                    await leaving.wait_closed()
            await until(lambda: feed.waiting == 1, "it is forgotten")
        await until(lambda: asyncio.all_tasks() <= tasks, "no task of theirs is left")
        await store.events.record("created", "ses_1", data={}, now=1.0)
        async with asyncio.timeout(30):
            assert b"id: 1\n" in await reader.readuntil(b"\n\n\r\n")
        feed.close()
        async with asyncio.timeout(30):
            assert await reader.readuntil(b"0\r\n\r\n"), "a feed that is closed ends its streams in order"
        writer.close()
