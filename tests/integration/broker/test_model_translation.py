"""When a provider fails, one that speaks another dialect answers instead: it is asked the same, in its own words."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.demo import wire_of
from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import Delta, FinishReason, gathered
from holdfast.broker.dialects.lacks import Target
from holdfast.broker.dialects.question import (
    CommonQuestion,
    Image,
    Message,
    Role,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    merged,
)
from holdfast.broker.dialects.reading import Reading
from holdfast.broker.dialects.sse import EventSplitter
from holdfast.broker.models.settings import ProxySettings
from holdfast.vocabulary.models import Wire
from support.fake_host import until
from support.servers.model_door import ACCOUNT, PRICE, Door, MemoryBooks, Said, key_of, model_door, provider_at
from support.servers.model_server import Cut, Gated, ModelServer, Silent, Status, model_server
from support.waiting import linger

pytestmark = pytest.mark.anyio

PAIRS = [(asked, other) for asked in Wire for other in Wire if asked is not other]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SCRIPT = "think hm\nsay before\nrun echo hi\nsay after"
ASKED = CommonQuestion(
    "m1",
    [Message(Role.SYSTEM, (Text("Be good."),)), Message(Role.USER, (Text(SCRIPT),))],
    [Tool("bash", "Runs a command.", SCHEMA)],
    max_tokens=100,
)
each_wire = pytest.mark.parametrize("wire", list(Wire))


@asynccontextmanager
async def host(
    wire: Wire, other: Wire, settings: ProxySettings | None = None
) -> AsyncIterator[tuple[ModelServer, Door]]:
    """``one`` speaks the agent's dialect, and fails; ``three`` speaks the other."""
    books = MemoryBooks(replace(ACCOUNT, preferences=("three/m3",)))
    async with model_server() as server:
        three = provider_at(server, "three", other, "m3")
        async with model_door(server, wire, books=books, more=[three], settings=settings) as door:
            server.break_("one", Status(529))
            yield server, door


async def put(door: Door, talk: CommonQuestion, *, stream: bool) -> Said:
    """Asked as an agent would, of ``one``."""
    path, _ = door.request("", stream=stream)
    told = replace(talk, streamed=stream and door.wire is not Wire.GEMINI)
    return await door.send("POST", f"/llm/one{path}", json=DIALECTS[door.wire].write_question(told, Target("m1", 1000)))


def heard(
    wire: Wire, said: Said, *, stream: bool
) -> tuple[list[Text | Thought | ToolCall], FinishReason | None, Reading]:
    """What an agent makes of it."""
    assert said.status == 200, said.body
    reader = DIALECTS[wire].reader("x")
    if not stream:
        return gathered(reader.read_whole(json.loads(said.body))), reader.reason, reader.reading
    assert said.headers["content-type"].startswith("text/event-stream")
    found: list[Delta] = []
    for event in EventSplitter().feed(said.body):
        found += reader.read_event(event) or ()
    assert reader.reading.finished and reader.reading.failed is None, said.body
    return gathered(found), reader.reason, reader.reading


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("wire", "other"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
async def test_another_dialect_answers_with_a_tool_call_and_takes_its_result(
    wire: Wire, other: Wire, stream: bool
) -> None:
    async with host(wire, other) as (server, door):
        parts, reason, _ = heard(wire, await put(door, ASKED, stream=stream), stream=stream)
        call = parts[-1]
        assert isinstance(call, ToolCall) and (call.name, reason) == ("bash", FinishReason.CALLS)
        assert json.loads(call.arguments) == {"command": "echo hi"}
        assert parts[:-1] == [Thought("hm\n"), Text("before\n")]

        seen = server.asked("three")[-1]
        assert (wire_of(seen.path), seen.key) == (other, key_of("three"))
        read = DIALECTS[other].read_question(json.loads(seen.body))
        assert read.lacks == ()
        assert (merged(read.messages), read.tools, read.max_tokens) == (list(ASKED.messages), ASKED.tools, 100)

        result = ToolResult(call.id, "bash", (Text("hi"),))
        later = [*ASKED.messages, Message(Role.MODEL, tuple(parts)), Message(Role.USER, (result,))]
        said = await put(door, replace(ASKED, messages=later), stream=stream)
        parts, reason, reading = heard(wire, said, stream=stream)
        assert (parts, reason) == ([Text("after\n")], FinishReason.STOP)
        read = DIALECTS[other].read_question(json.loads(server.asked("three")[-1].body))
        answer, last = merged(read.messages)[2:]
        assert (answer.role, last) == (Role.MODEL, Message(Role.USER, (result,)))
        said_before, called = answer.parts
        assert said_before == Text("before\n") and isinstance(called, ToolCall)
        assert (called.id, json.loads(called.arguments)) == (call.id, {"command": "echo hi"})

        await until(lambda: len(door.books.calls) == 4 and bool(door.books.told), "all is written down")
        bill = door.books.calls[-1]
        assert (bill.provider, bill.error) == ("three", None)
        assert bill.cost_usd == PRICE.cost(bill.tokens, 0)
        assert reading.input in (bill.tokens.input, None)  # chat completions tell it only where that was asked for
        assert [event.data["to"] for event in door.books.told] == ["three/m3"]


LACKING: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"n": 2},
    Wire.RESPONSES: {"tools": [{"type": "web_search"}]},
    Wire.MESSAGES: {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    Wire.GEMINI: {"cachedContent": "cachedContents/1"},
}


@each_wire
async def test_who_cannot_be_asked_the_same_is_left_out_and_that_is_said(wire: Wire) -> None:
    async with host(wire, Wire.CHAT if wire is not Wire.CHAT else Wire.MESSAGES) as (server, door):
        path, body = door.request("say hello")
        said = await door.send("POST", f"/llm/one{path}", json={**body, **LACKING[wire]})
        assert said.status == 529 and not server.asked("three")
        message = json.loads(said.body)["error"]["message"]
        assert message.startswith("Overloaded; not asked") and "three/m3 (" in message
        assert any(word in message for word in ("several answers", "web_search", "cachedContent"))


@pytest.mark.parametrize("other", [Wire.CHAT, Wire.MESSAGES])
async def test_who_does_not_see_is_left_out_where_there_are_images(other: Wire) -> None:
    async with model_server() as server:
        three = provider_at(server, "three", other, "m3")
        blind = [replace(offer, model=replace(offer.model, images=False)) for offer in three.offers]
        books = MemoryBooks(replace(ACCOUNT, preferences=("three/m3",)))
        async with model_door(server, Wire.CHAT, books=books, more=[replace(three, offers=blind)]) as door:
            server.break_("one", Status(529))
            shown = Message(Role.USER, (Text("say hello"), Image("image/png", "AAAA")))
            said = await put(door, CommonQuestion("m1", [shown]), stream=False)
            assert said.status == 529 and not server.asked("three")
            assert "three/m3 (images, which it does not see)" in json.loads(said.body)["error"]["message"]
            assert (
                await put(door, CommonQuestion("m1", [Message(Role.USER, (Text("say hello"),))]), stream=False)
            ).status == 200


@each_wire
async def test_a_stream_that_breaks_ends_with_an_error_in_the_agents_dialect(wire: Wire) -> None:
    other = Wire.MESSAGES if wire is not Wire.MESSAGES else Wire.RESPONSES
    async with host(wire, other) as (server, door):
        server.break_("three", Cut(7))
        said = await door.ask("say one two three four five six")
        assert said.status == 200
        reader = DIALECTS[wire].reader("x")
        for event in EventSplitter().feed(said.body):
            reader.read_event(event)
        reading = reader.reading
        assert reading.failed is not None and "broke off" in reading.failed
        await until(lambda: len(door.books.calls) == 2, "it is written down")
        assert door.books.calls[-1].error is not None and door.books.calls[-1].tokens.output > 0


@each_wire
async def test_an_error_in_the_middle_is_told_in_the_agents_dialect(wire: Wire) -> None:
    other = Wire.GEMINI if wire is not Wire.GEMINI else Wire.CHAT
    async with host(wire, other) as (_, door):
        said = await door.ask("say one two\nfail 500 it burns")
        reader = DIALECTS[wire].reader("x")
        for event in EventSplitter().feed(said.body):
            reader.read_event(event)
        reading = reader.reading
        assert reading.failed == "it burns"
        await until(lambda: len(door.books.calls) == 2, "it is written down")
        assert door.books.calls[-1].error == "it burns"


async def test_words_pass_as_they_come() -> None:
    async with host(Wire.MESSAGES, Wire.CHAT) as (server, door):
        gated = Gated(pieces=2)
        server.break_("three", gated)
        path, body = door.request("say one two three")
        async with asyncio.timeout(30), door.client.post(f"{door.url}/llm/one{path}", json=body) as response:
            first = b""
            while b"one " not in first:
                first += await response.content.readany()
            assert b"two" not in first, "the rest is not sent yet"
            for _ in range(20):
                gated.gate.release()
            rest = await response.content.read()
        assert b"message_stop" in rest


async def test_what_is_wrong_with_the_translated_question_is_not_told_as_the_agents_fault() -> None:
    async with host(Wire.MESSAGES, Wire.CHAT) as (server, door):
        server.break_("three", Status(400))
        said = await door.ask()
        assert (said.status, json.loads(said.body)["error"]["message"]) == (
            529,
            "Overloaded; one has a problem of its own; try again later, or choose another model",
        )
        assert len(server.asked("three")) == 1


async def test_where_all_fail_the_last_ones_words_are_told_in_the_agents_dialect() -> None:
    async with host(Wire.MESSAGES, Wire.GEMINI) as (server, door):
        server.break_("three", Status(429, {"retry-after": "7"}))
        said = await door.ask()
        assert (said.status, said.headers["retry-after"]) == (429, "7")
        error = json.loads(said.body)["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "provider_busy")


async def test_the_only_one_who_can_be_asked_has_time() -> None:
    quick = ProxySettings(first_byte_seconds=0.2, answer_seconds=30.0)
    async with host(Wire.RESPONSES, Wire.CHAT, quick) as (server, door):
        server.mend("one")
        silent = Silent()
        server.break_("one", silent, times=1)
        path, body = door.request("say hello")
        task = asyncio.create_task(door.send("POST", f"/llm/one{path}", json={**body, "previous_response_id": "r"}))
        await until(lambda: len(server.asked("one")) == 1, "it is asked")
        await linger(2 * quick.first_byte_seconds)  # longer than it would have if another one could be asked
        silent.gate.set()
        assert (await task).status == 200
        assert not server.asked("three")


async def test_a_gemini_stream_without_events_is_a_list() -> None:
    async with host(Wire.GEMINI, Wire.CHAT) as (server, door):
        _, body = door.request("say hello")
        said = await door.send("POST", "/llm/one/v1beta/models/m1:streamGenerateContent", json=body)
        [answer] = json.loads(said.body)
        assert answer["candidates"][0]["content"]["parts"] == [{"text": "hello\n"}]
        assert "stream" not in json.loads(server.asked("three")[-1].body)


async def test_thoughts_of_another_model_are_not_sent_to_the_first_when_it_is_back() -> None:
    async with host(Wire.MESSAGES, Wire.CHAT) as (server, door):
        said = json.loads((await door.ask("think hm\nsay hello", stream=False)).body)
        assert [block["type"] for block in said["content"]] == ["thinking", "text"]
        server.mend("one")
        _, body = door.request("say bye")
        messages = [{"role": "assistant", "content": said["content"]}, *body["messages"]]  # type: ignore[misc]  # it is a list
        assert (await door.send("POST", "/llm/one/v1/messages", json={**body, "messages": messages})).status == 200
        asked = json.loads(server.asked("one")[-1].body)
        assert asked["messages"][0]["content"] == said["content"][1:]


# -- providers that do not speak the agent's dialect at all ------------------------------------------------------------


@pytest.mark.parametrize(("wire", "other"), [(Wire.MESSAGES, Wire.CHAT), (Wire.RESPONSES, Wire.MESSAGES)])
async def test_a_provider_is_asked_in_a_dialect_that_it_does_not_speak(wire: Wire, other: Wire) -> None:
    async with host(wire, other) as (server, door):
        said = await door.ask("say hello", provider="three", model="m3")
        parts, _, _ = heard(wire, said, stream=True)
        assert parts == [Text("hello\n")] and wire_of(server.asked("three")[-1].path) is other
        await until(lambda: len(door.books.calls) == 1, "it is written down")
        assert door.books.calls[0].provider == "three" and not door.books.told


async def test_what_cannot_be_translated_for_the_only_one_is_said() -> None:
    async with host(Wire.RESPONSES, Wire.MESSAGES) as (server, door):
        body = {"model": "m3", "input": "hi", "tools": [{"type": "web_search"}]}
        said = await door.send("POST", "/llm/three/v1/responses", json=body)
        error = json.loads(said.body)["error"]
        assert (said.status, error["code"]) == (400, "cannot_translate") and "web_search" in error["message"]
        server.break_("three", Status(404))
        assert (await door.ask(provider="three", model="m3")).status == 404
