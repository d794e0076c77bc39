"""The demo model as a server: it serves every provider, and breaks when it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from support.servers.model_server import Cut, Garbage, Gated, Huge, ModelServer, Silent, Status, events_of, model_server
from support.waiting import until

pytestmark = pytest.mark.anyio
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "say one two three four five"}]}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
        yield client


def ask(client: aiohttp.ClientSession, server: ModelServer, provider: str, path: str = "/v1/messages"):  # type: ignore[no-untyped-def]  # aiohttp's context manager has no public name
    return client.post(server.base_url(provider) + path, json=BODY, headers={"x-api-key": "secret"})


async def test_it_answers_for_any_provider_and_remembers_the_key(
    server: ModelServer, client: aiohttp.ClientSession
) -> None:
    async with ask(client, server, "openai", "/v1/chat/completions") as answer:
        assert answer.content_type == "text/event-stream"
        assert [data for _name, data in events_of(await answer.read())][-1] == "[DONE]"
    async with client.post(f"{server.url}/v1beta/models/x:generateContent?key=other", json={}) as answer:
        assert answer.status == 200
    assert [(seen.provider, seen.key) for seen in server.seen] == [("openai", "secret"), ("demo", "other")]
    assert [seen.path for seen in server.asked("openai")] == ["/v1/chat/completions"]


async def test_a_status_for_a_while_with_the_dialects_own_body(
    server: ModelServer, client: aiohttp.ClientSession
) -> None:
    server.break_("anthropic", Status(529, {"retry-after": "7"}), times=2)
    for _ in range(2):
        async with ask(client, server, "anthropic") as answer:
            assert (answer.status, answer.headers["retry-after"]) == (529, "7")
            assert json.loads(await answer.read())["error"]["type"] == "overloaded_error"
    async with ask(client, server, "anthropic") as answer:
        assert answer.status == 200
    server.break_("openai", Status(401))
    async with ask(client, server, "openai", "/v1/responses") as answer:
        assert json.loads(await answer.read())["error"]["code"] == "invalid_api_key"
    server.mend("openai")
    async with ask(client, server, "openai", "/v1/responses") as answer:
        assert answer.status == 200


async def test_no_first_byte_until_the_gate_opens(server: ModelServer, client: aiohttp.ClientSession) -> None:
    fault = Silent()
    server.break_("slow", fault)
    asking = asyncio.ensure_future(ask(client, server, "slow").__aenter__())
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    fault.gate.set()
    answer = await asking
    assert b"message_stop" in await answer.read()


async def test_a_stream_that_is_cut(server: ModelServer, client: aiohttp.ClientSession) -> None:
    server.break_("weak", Cut(pieces=3))
    async with ask(client, server, "weak") as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_deltas_come_when_the_gate_lets_them(server: ModelServer, client: aiohttp.ClientSession) -> None:
    fault = Gated(pieces=2)
    server.break_("gated", fault)
    async with ask(client, server, "gated") as answer:
        seen = b""
        while seen.count(b"\n\n") < 2:
            seen += await answer.content.readany()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await answer.content.readany()
        for _ in range(50):
            fault.gate.release()
        assert b"message_stop" in await answer.read()


async def test_garbage_and_too_much(server: ModelServer, client: aiohttp.ClientSession) -> None:
    server.break_("strange", Garbage(), times=1)
    server.break_("strange", Huge(1 << 20))
    async with ask(client, server, "strange") as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    async with ask(client, server, "strange") as answer:
        body = await answer.read()
    assert len(body) > 1 << 20
    assert next(events_of(body))[0] == "message_start"


async def test_who_goes_away_frees_the_server(server: ModelServer, client: aiohttp.ClientSession) -> None:
    server.break_("slow", Silent())
    asking = asyncio.ensure_future(ask(client, server, "slow").__aenter__())
    await until(lambda: server.open == 1, "the request has come")
    asking.cancel()
    await until(lambda: server.open == 0, "it was given up")
