"""What passes the model proxy, what does not, and what is written down of it."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import structlog

from holdfast.broker.accounts import Account, Call, SpendingLimits, Spent
from holdfast.broker.models.answering import passage
from holdfast.broker.models.intake import room
from holdfast.broker.models.prices import FREE
from holdfast.broker.models.providers.catalogue import Offer, Provider, ProviderKind
from holdfast.broker.secrets import FileKey
from holdfast.errors import Unavailable
from holdfast.vocabulary.models import Model, Wire, placeholder
from support.fake_host import until
from support.servers.model_door import ACCOUNT, MemoryBooks, key_of, model_door
from support.servers.model_server import Garbage, Gated, Huge, Silent, Status, events_of, model_server
from support.waiting import linger

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", list(Wire))
async def test_an_answer_passes_unchanged_and_is_paid_for(wire: Wire, stream: bool) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        path, body = door.request("say hello to all of you", stream=stream)
        if wire is Wire.CHAT and stream:
            body = {**body, "stream_options": {"include_usage": True}}
        said = await door.send("POST", f"/llm/one{path}", json=body)
        async with aiohttp.ClientSession() as direct, direct.post(server.base_url("one") + path, json=body) as response:
            same = await response.read()
        assert said.status == 200
        assert said.headers["content-type"] == response.headers["Content-Type"]
        assert _nameless(said.body) == _nameless(same)
        assert len(door.books.calls) == 1, "it is written down before the answer's end is sent"
        call = door.books.calls[0]
        assert (call.provider, call.model, call.status, call.error) == ("one", "m1", 200, None)
        assert call.tokens.input > 0 and call.tokens.output > 0
        assert call.cost_usd == pytest.approx((call.tokens.input + 10 * call.tokens.output) / 1e6)
        assert call.first_byte_seconds is not None and call.first_byte_seconds <= call.seconds
        assert door.books.tags == ["webdefault"]


def _nameless(body: bytes) -> bytes:
    """Without what differs from answer to answer: ids are made of the body, and times are times."""
    return re.sub(rb'"(id|item_id|responseId|created|created_at|response_id|call_id)": ?("[^"]*"|[0-9]+)', b"", body)


async def test_usage_that_only_we_asked_for_is_not_passed_on() -> None:
    async with model_server() as server, model_door(server) as door:
        said = await door.ask("say hello")
        assert json.loads(server.asked("one")[0].body)["stream_options"] == {"include_usage": True}
        assert b'"choices": []' not in said.body and b'"choices":[]' not in said.body
        assert list(events_of(said.body))[-1][1] == "[DONE]"
        assert door.books.calls[0].tokens.output > 0


@pytest.mark.parametrize("wire", list(Wire))
async def test_the_real_key_is_added_and_the_sandboxs_own_is_dropped(wire: Wire) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        path, body = door.request("say hello")
        mine = dict.fromkeys(("x-api-key", "x-goog-api-key", "api-key", "cookie", "x-forwarded-for"), "sk-mine")
        mine |= {"authorization": "Bearer sk-mine", "openai-organization": "org-mine", "x-stainless-lang": "js"}
        glue = "&" if "?" in path else "?"
        said = await door.send(
            "POST", f"/llm/one{path}{glue}key=sk-mine&api_key=sk-mine&beta=true", json=body, headers=mine
        )
        assert said.status == 200
        seen = server.asked("one")[0]
        assert seen.key == key_of("one")
        assert "sk-mine" not in str(seen.headers) + seen.path + seen.body.decode()
        assert "org-mine" not in str(seen.headers)
        assert seen.headers["x-stainless-lang"] == "js" and "beta=true" in seen.path
        assert key_of("one") not in str(said.headers) + said.body.decode()


async def test_a_channel_is_known_by_its_placeholder_wherever_a_program_puts_its_key() -> None:
    async with model_server() as server, model_door(server, Wire.GEMINI) as door:
        path, body = door.request("say hello")
        key = placeholder("tg1")
        for headers, query in (({"x-api-key": key}, ""), ({"x-goog-api-key": key}, ""), ({}, f"&key={key}")):
            await door.send("POST", f"/llm/one{path}{query}", json=body, headers={"authorization": "", **headers})
        assert door.books.tags == ["tg1"] * 3


@pytest.mark.parametrize(
    ("wire", "method", "path"),
    [
        (Wire.CHAT, "POST", "/v1/files"),
        (Wire.CHAT, "DELETE", "/v1/models/m1"),
        (Wire.CHAT, "GET", "/v1/organization/api_keys"),
        (Wire.CHAT, "POST", "/v1/responses/compact"),
        (Wire.CHAT, "GET", "/v1/models/../organization"),
        (Wire.MESSAGES, "POST", "/v1/messages/batches"),
        (Wire.MESSAGES, "GET", "/v1/organizations/api_keys"),
        (Wire.GEMINI, "POST", "/v1beta/models/m1:predict"),
        (Wire.GEMINI, "POST", "/upload/v1beta/files"),
    ],
)
async def test_nothing_else_is_forwarded(wire: Wire, method: str, path: str) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        said = await door.send(method, f"/llm/one{path}", json={"model": "m1"})
        assert said.status == 404
        error = json.loads(said.body)["error"]
        assert "not offered" in error["message"]
        assert ("type" in json.loads(said.body)) == (wire is Wire.MESSAGES)
        assert error.get("status", "NOT_FOUND") == "NOT_FOUND"
        assert not server.seen


async def test_lists_of_models_and_counts_pass_and_cost_nothing() -> None:
    async with model_server() as server, model_door(server, Wire.MESSAGES) as door:
        assert (await door.send("GET", "/llm/one/v1/models?limit=5")).status == 200
        counted = await door.send("POST", "/llm/one/v1/messages/count_tokens", json={"model": "m1", "messages": []})
        assert counted.status == 200 and "input_tokens" in json.loads(counted.body)
        assert [seen.path for seen in server.seen] == ["/v1/models?limit=5", "/v1/messages/count_tokens"]
        assert not door.books.calls


async def test_a_sandbox_of_no_thread_gets_a_clear_no() -> None:
    async with model_server() as server, model_door(server, books=MemoryBooks(None)) as door:
        said = await door.ask()
        assert said.status == 403
        assert "belongs to no thread" in json.loads(said.body)["error"]["message"]
        assert not server.seen


async def test_books_that_cannot_be_looked_into() -> None:
    class Closed(MemoryBooks):
        async def spent(self, _account: Account, /) -> Spent:
            raise Unavailable("the database is away")

    books = Closed(replace(ACCOUNT, limits=SpendingLimits(spend_usd=1.0)))
    async with model_server() as server, model_door(server, Wire.MESSAGES, books=books) as door:
        said = await door.ask()
        assert said.status == 503 and "retry-after" in said.headers
        assert json.loads(said.body)["error"]["type"] == "overloaded_error"
        assert not server.seen


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"a": 1}', "names no model"),
        (b'{"model": "' + b"m" * 201 + b'"}', "is no model"),
        (b'{"model": "m\\u0000"}', "is no model"),
        (b'{"model": NaN}', "no JSON"),
        (b'{"model": "m1", "background": true}', "background"),
    ],
)
async def test_a_question_that_is_none(body: bytes, what: str) -> None:
    async with model_server() as server, model_door(server) as door:
        said = await door.send("POST", "/llm/one/v1/chat/completions", data=body)
        assert said.status == 400 and what in json.loads(said.body)["error"]["message"]
        assert not server.seen


async def test_a_large_question_that_waits_to_be_let_in() -> None:
    async with model_server() as server, model_door(server) as door:
        path, body = door.request("say hello " + "x" * (3 << 20))
        async with asyncio.timeout(30):
            url = f"{door.url}/llm/one{path}"
            async with door.client.post(url, json=body, expect100=True) as response:
                assert response.status == 200
                await response.read()
        assert len(server.asked("one")[0].body) > 3 << 20


async def test_a_question_of_too_many_values() -> None:
    async with model_server() as server, model_door(server) as door:
        body = b'{"model": "m1", "x": [' + b"[]," * 300_000 + b"1]}"
        said = await door.send("POST", "/llm/one/v1/chat/completions", data=body)
        assert said.status == 400 and "60000 values" in json.loads(said.body)["error"]["message"]
        assert not server.seen


async def test_nothing_is_read_of_who_has_used_up_its_requests() -> None:
    account = replace(ACCOUNT, limits=SpendingLimits(requests_per_minute=1))
    async with model_server() as server, model_door(server, books=MemoryBooks(account)) as door:
        assert (await door.send("POST", "/llm/one/v1/chat/completions", data=b"{")).status == 400
        assert (await door.send("POST", "/llm/one/v1/chat/completions", data=b"{")).status == 429
        assert not server.seen


async def test_who_puts_large_questions_one_after_the_other_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SLACK_SECONDS", 0.0)
    monkeypatch.setattr(room, "BYTES_PER_SECOND", 1000)
    async with model_server() as server, model_door(server) as door:
        assert (await door.ask("say " + "x" * 100_000)).status == 200
        asking = asyncio.create_task(door.ask())
        await until(lambda: door.metric("holdfast_model_calls_under_way") == 1.0, "it has come")
        done, _ = await asyncio.wait([asking], timeout=0.5)
        assert not done and len(server.asked("one")) == 1, "it waits for more than a minute"
        asking.cancel()


async def test_small_values_take_more_room_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SESSION_BYTES", 1_000_000)
    async with model_server() as server, model_door(server) as door:
        body = b'{"model": "m1", "x": [' + b"[]," * 20_000 + b"1]}"
        said = await door.send("POST", "/llm/one/v1/chat/completions", data=body)
        assert said.status == 429 and "one after the other" in json.loads(said.body)["error"]["message"]


async def test_too_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SESSION_BYTES", 100_000)
    async with model_server() as server, model_door(server) as door:
        assert (await door.ask("say " + "x" * 90_000)).status == 200
        refused = await door.ask("say " + "x" * 110_000)
        assert refused.status == 429 and "one after the other" in json.loads(refused.body)["error"]["message"]
        assert (await door.ask("say " + "x" * 90_000)).status == 200, "what was taken is given back"


async def test_a_key_that_is_missing_is_the_operators_business() -> None:
    async with model_server() as server:
        key = FileKey(Path("/nowhere/at/all"))
        three = Provider(
            "three", ProviderKind.OPENAI, server.base_url("three") + "/v1", key, (), frozenset({Wire.CHAT})
        )
        books = MemoryBooks(replace(ACCOUNT, preferences=()))
        async with model_door(server, books=books, more=[three]) as door:
            with structlog.testing.capture_logs() as lines:
                said = await door.ask(provider="three", model="m3")
        assert said.status == 502 and b"no key for three" in said.body and b"nowhere" not in said.body
        assert any("/nowhere/at/all" in str(line.get("why")) for line in lines)


async def test_other_providers_and_other_paths() -> None:
    async with model_server() as server, model_door(server) as door:
        said = await door.ask(provider="nobody")
        assert said.status == 404 and "there is one, two" in json.loads(said.body)["error"]["message"]
        other = await door.send("GET", "/git/x")
        assert other.status == 404 and "/llm/" in json.loads(other.body)["error"]["message"]


async def test_the_demo_is_answered_in_process() -> None:
    wires = tuple(Wire)
    demo = Provider(
        "demo", ProviderKind.DEMO, "", None, [Offer(Model("demo", "demo-1", wires), FREE)], frozenset(wires)
    )
    async with model_server() as server:
        for wire in wires:
            async with model_door(server, wire, more=[demo]) as door:
                said = await door.ask("say hello", provider="demo", model="demo-1")
                assert said.status == 200 and b"hello" in said.body
                assert door.books.calls[0].cost_usd == 0.0
    assert not server.seen


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_models_that_are_not_allowed() -> None:
    account = replace(ACCOUNT, allowed_models=("one/m*", "two/x"))
    async with model_server() as server, model_door(server, books=MemoryBooks(account)) as door:
        assert (await door.ask()).status == 200
        said = await door.ask(provider="two", model="m2")
        assert said.status == 403
        assert "it may use one/m*, two/x" in json.loads(said.body)["error"]["message"]
        assert not server.asked("two")
        # The last of two names counts, for us and for the provider.
        twice = b'{"model": "m1", "messages": [{"role": "user", "content": "say x"}], "model": "other"}'
        assert (await door.send("POST", "/llm/one/v1/chat/completions", data=twice)).status == 403


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("whose", ["limits", "owner_limits"])
async def test_requests_per_minute(wire: Wire, whose: str) -> None:
    limits = SpendingLimits(requests_per_minute=2)
    account = replace(ACCOUNT, limits=limits) if whose == "limits" else replace(ACCOUNT, owner_limits=limits)
    async with model_server() as server, model_door(server, wire, books=MemoryBooks(account)) as door:
        assert [(await door.ask()).status for _ in range(3)] == [200, 200, 429]
        refused = await door.ask()
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "2 requests a minute" in json.loads(refused.body)["error"]["message"]
        assert len(server.asked("one")) == 2
        assert door.metric("holdfast_model_refused_total", why="requests_per_minute") == 2


class SlowBooks(MemoryBooks):
    """Whoever looks is slow to come back with it: the others look meanwhile."""

    async def spent(self, account: Account, /) -> Spent:
        before = await super().spent(account)
        await linger()
        return before


async def test_limits_hold_when_many_come_at_once() -> None:
    account = replace(ACCOUNT, limits=SpendingLimits(requests_per_minute=3, spend_usd=1.0))
    async with model_server() as server, model_door(server, books=SlowBooks(account)) as door:
        said = await asyncio.gather(*(door.ask() for _ in range(30)))
        assert sorted(one.status for one in said) == [200] * 3 + [429] * 27
        assert len(server.asked("one")) == 3


async def test_what_calls_under_way_may_cost_counts_as_spent() -> None:
    books = SlowBooks(replace(ACCOUNT, preferences=(), limits=SpendingLimits(spend_usd=0.001)))
    async with model_server() as server, model_door(server, Wire.MESSAGES, books=books) as door:
        gate = Gated(pieces=2)  # each may have 100 tokens: $0.001
        server.break_("one", gate)
        asked = [asyncio.create_task(door.ask()) for _ in range(5)]
        done, waiting = await asyncio.wait(asked, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        refused = [one.result() for one in done]
        while len(refused) < 4:
            done, waiting = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            refused += [one.result() for one in done]
        assert {(one.status, one.headers["retry-after"]) for one in refused} == {(429, "5")}
        assert all(b"under way" in one.body for one in refused)
        for _ in range(50):
            gate.gate.release()
        assert [one.status for one in await asyncio.gather(*waiting)] == [200]
        assert (await door.ask()).status == 200, "it has cost less than it might have"


async def test_tokens_per_minute() -> None:
    account = replace(ACCOUNT, limits=SpendingLimits(tokens_per_minute=5))
    async with model_server() as server, model_door(server, books=MemoryBooks(account)) as door:
        assert (await door.ask("say one two three four five six seven")).status == 200
        refused = await door.ask()
        assert refused.status == 429 and "retry-after" in refused.headers


async def test_a_budget_is_kept_and_told_of() -> None:
    books = MemoryBooks(replace(ACCOUNT, limits=SpendingLimits(spend_usd=1.0)))
    books.spent_before = 0.79999
    async with model_server() as server, model_door(server, books=books) as door:
        assert (await door.ask("say one two three four five six seven")).status == 200
        await until(lambda: bool(books.told), "80 % are told of")
        assert books.told[0].data["what"] == "budget" and "80%" in str(books.told[0].data["message"])
        books.spent_before = 1.0
        refused = await door.ask()
        assert refused.status == 403 and "budget of $1" in json.loads(refused.body)["error"]["message"]
        unknown = await door.ask(model="unheard-of")
        assert unknown.status == 403 and "no price" in json.loads(unknown.body)["error"]["message"]
        assert len(server.asked("one")) == 1


async def test_a_burst_of_refusals_is_told_once() -> None:
    books = MemoryBooks(replace(ACCOUNT, allowed_models=()))
    async with model_server() as server, model_door(server, books=books) as door:
        for _ in range(25):
            assert (await door.ask()).status == 403
        await until(lambda: bool(books.told), "it is told")
        assert [event.data["what"] for event in books.told] == ["refused"]


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_each_piece_comes_when_it_is_there() -> None:
    async with model_server() as server, model_door(server) as door:
        gate = Gated(pieces=2)
        server.break_("one", gate)
        path, body = door.request("say one two three")
        async with asyncio.timeout(30), door.client.post(f"{door.url}/llm/one{path}", json=body) as response:
            first = await response.content.readany()
            assert first.startswith(b"data:") and first.endswith(b"\n\n")
            for _ in range(50):
                gate.gate.release()
            assert (await response.read()).endswith(b"[DONE]\n\n")


async def test_a_program_that_hangs_up_ends_the_call_and_is_billed_for_what_was_said() -> None:
    async with model_server() as server, model_door(server, Wire.MESSAGES) as door:
        gate = Gated(pieces=8)
        server.break_("one", gate)
        path, body = door.request("say one two three four five six seven eight nine ten eleven twelve")
        async with asyncio.timeout(30), door.client.post(f"{door.url}/llm/one{path}", json=body) as response:
            while b"content_block_delta" not in await response.content.readany():
                pass
            response.close()
        await until(lambda: server.open == 0, "the provider is hung up on, too")
        await until(lambda: bool(door.books.calls), "it is written down")
        call = door.books.calls[0]
        assert call.error == "canceled" and call.tokens.input > 0 and call.tokens.output > 0


async def test_a_program_that_hangs_up_before_the_first_word_is_billed_for_its_question() -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Silent())
        path, body = door.request("say " + "x" * 4000)
        asking = asyncio.create_task(door.send("POST", f"/llm/one{path}", json=body))
        await until(lambda: bool(server.asked("one")), "the provider is asked")
        asking.cancel()
        await until(lambda: bool(door.books.calls), "it is written down")
        call = door.books.calls[0]
        assert (call.status, call.error) == (0, "canceled")
        assert call.tokens.input > 1000 and call.cost_usd is not None and call.cost_usd > 0


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("size", [400, 5 << 20], ids=["without-usage", "too-long-to-read"])
async def test_a_document_that_does_not_say_its_usage_is_billed_by_its_size(wire: Wire, size: int) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        server.break_("one", Garbage(b'{"x": "' + b"y" * size + b'"}', "application/json"))
        assert (await door.ask("say hello there", stream=False)).status == 200
        tokens = door.books.calls[0].tokens
        assert tokens.input > 0
        most = 100 if wire is Wire.MESSAGES else 16_000
        assert tokens.output == min(102 if size == 400 else 1 << 30, most)


async def test_no_parameter_leaves_the_usage_out() -> None:
    async with model_server() as server, model_door(server, Wire.GEMINI) as door:
        path, body = door.request("say hello")
        await door.send("POST", f"/llm/one{path}&fields=candidates&%24fields=candidates&FIELDS=x", json=body)
        assert server.asked("one")[0].path == path


async def test_a_long_stream_does_not_pile_up() -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Huge(24 << 20))
        path, body = door.request("say hello")
        async with asyncio.timeout(60), door.client.post(f"{door.url}/llm/one{path}", json=body) as response:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
        assert size > 24 << 20


async def test_many_streams_at_once() -> None:
    async with model_server() as server, model_door(server) as door:
        said = await asyncio.gather(*(door.ask(f"say number {number}") for number in range(60)))
        assert [one.status for one in said] == [200] * 60
        assert all(f"{number}".encode() in one.body for number, one in enumerate(said))
        assert len(door.books.calls) == 60


async def test_a_daemon_that_stops_says_so_in_the_stream() -> None:
    async with model_server() as server, model_door(server) as door:
        gate = Gated(pieces=3)
        server.break_("one", gate)
        path, body = door.request("say one two three four five")
        async with asyncio.timeout(30), door.client.post(f"{door.url}/llm/one{path}", json=body) as response:
            await response.content.readany()
            await door.proxy.close()
            rest = await response.content.read()
        assert b"stopping" in rest


async def test_the_log_has_a_line_per_call_without_words_or_keys() -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Status(500), times=1)
        with structlog.testing.capture_logs() as lines:
            await door.ask("say a-secret-word")
            await until(lambda: sum(line["event"] == "model.call" for line in lines) == 2, "there are two lines")
        failed, good = [line for line in lines if line["event"] == "model.call"]
        assert (failed["status"], good["status"]) == (500, 200)
        assert good["thread_id"] == "thr_1" and good["turn_id"] == "trn_1" and good["ms"] >= 0
        assert {"provider", "model", "input_tokens", "output_tokens", "cost_usd"} <= good.keys()
        assert "a-secret-word" not in str(lines) and "sk-the-real" not in str(lines)


async def test_a_call_is_in_the_books_before_anybody_is_asked_and_as_long_as_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a daemon that is killed has not made it for nothing: see ``UsageStore.settle``."""
    monkeypatch.setattr(passage, "_NOTED_SECONDS", 0.0)
    async with model_server() as server, model_door(server) as door:
        gate = Gated(pieces=6)
        server.break_("one", gate)
        asking = asyncio.ensure_future(door.ask("say one two three four five six seven eight"))
        await until(lambda: bool(server.asked("one")), "it is asked")
        [begun] = door.books.begun
        assert begun.tokens.input > 0 and begun.cost_usd
        await until(lambda: any(one.tokens.output for one in door.books.open.values()), "what was said is noted")
        assert all((one.cost_usd or 0) > (begun.cost_usd or 0) for one in door.books.open.values())
        for _ in range(50):
            gate.gate.release()
        await asking
        assert (door.books.open, len(door.books.calls)) == ({}, 1)


async def test_no_call_is_left_open_whatever_becomes_of_it() -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Status(503))
        assert (await door.ask()).status == 200  # by the other
        server.break_("two", Status(503))
        assert (await door.ask()).status == 503
        server.mend("one")
        server.break_("one", Silent())
        asking = asyncio.ensure_future(door.ask())
        await until(lambda: len(door.books.open) == 1, "it is under way")
        asking.cancel()
        await until(lambda: not door.books.open, "it was given up")
        assert len(door.books.calls) == len(door.books.begun)


async def test_nobody_is_asked_where_the_books_cannot_be_written() -> None:
    class Closed(MemoryBooks):
        async def begin(self, _account: Account, _call: Call, /) -> str:
            raise Unavailable("the database is away")

    async with model_server() as server, model_door(server, books=Closed()) as door:
        assert (await door.ask()).status == 503
        assert server.asked("one") == []
