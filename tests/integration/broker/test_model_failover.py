"""When a provider fails, in each of the ways in which they do and in each dialect, the next one answers instead."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from holdfast.broker.models.asking.breaker import BreakerSettings
from holdfast.broker.models.providers.catalogue import Provider, ProviderKind
from holdfast.broker.models.settings import ProxySettings
from holdfast.vocabulary.models import Wire
from holdfast.vocabulary.turn_events import Kind as AgentEvent
from support.fake_host import until
from support.servers.model_door import ACCOUNT, Door, FixedKey, MemoryBooks, key_of, model_door
from support.servers.model_server import Cut, Fault, Garbage, Silent, Status, events_of, model_server
from support.waiting import linger

pytestmark = pytest.mark.anyio

QUICK = ProxySettings(first_byte_seconds=0.5, answer_seconds=30.0)
FAULTS: Mapping[str, Callable[[], Fault]] = {
    **{str(code): partial(Status, code) for code in (401, 402, 403, 429, 500, 503, 529)},
    "silent": Silent,
    "garbage": Garbage,
    "cut": partial(Cut, 0),
}


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("fault", list(FAULTS))
async def test_the_next_candidate_gets_the_same_question(wire: Wire, fault: str) -> None:
    async with model_server() as server, model_door(server, wire, settings=QUICK) as door:
        server.break_("one", FAULTS[fault]())
        said = await door.ask("say hello from the second")
        assert said.status == 200
        assert b"second" in said.body and b"broke" not in said.body
        first, second = server.asked("one")[-1], server.asked("two")[-1]
        assert (first.key, second.key) == (key_of("one"), key_of("two"))
        if wire is Wire.GEMINI:
            assert second.path.startswith("/v1beta/models/m2:streamGenerateContent")
            assert json.loads(first.body) == json.loads(second.body)
        else:
            assert json.loads(second.body) == {**json.loads(first.body), "model": "m2"}
        await until(lambda: len(door.books.calls) == 2 and bool(door.books.told), "both calls are written down")
        assert [(call.provider, call.error is None) for call in door.books.calls] == [("one", False), ("two", True)]
        event = door.books.told[0]
        assert event.kind is AgentEvent.MODEL_SWITCHED
        assert (event.data["from"], event.data["to"]) == ("one/m1", "two/m2")


@pytest.mark.parametrize("others", [("two/m2",), ()], ids=["another", "nobody else"])
async def test_a_key_that_is_repeated_within_a_stream_reaches_nobody(others: tuple[str, ...]) -> None:
    told = b'data: {"error": {"message": "Incorrect API key: %s", "code": "invalid_api_key"}}\n\n'
    books = MemoryBooks(replace(ACCOUNT, preferences=others))
    async with model_server() as server, model_door(server, Wire.CHAT, settings=QUICK, books=books) as door:
        server.break_("one", Garbage(told % key_of("one").encode(), "text/event-stream"))
        said = await door.ask("say hello")
        assert said.status == (200 if others else 401)
        await until(lambda: len(door.books.calls) == 1 + len(others), "the calls are written down")
        everything = said.body.decode() + str(door.books.calls) + str(door.books.told)
        assert key_of("one") not in everything and "Incorrect" not in everything


@pytest.mark.parametrize("wire", list(Wire))
async def test_nobody_listens(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kind = {Wire.MESSAGES: ProviderKind.ANTHROPIC, Wire.GEMINI: ProviderKind.GEMINI}.get(wire, ProviderKind.OPENAI)
    gone = Provider("gone", kind, f"http://127.0.0.1:{port}", FixedKey("k"), (), frozenset({wire}))
    async with model_server() as server, model_door(server, wire, more=[gone]) as door:
        said = await door.ask("say hello from the second", provider="gone", model="m0")
        assert said.status == 200 and b"second" in said.body
        books = door.books
        books.the_account = replace(ACCOUNT, preferences=())
        alone = await door.ask(provider="gone", model="m0")
        assert alone.status == 502
        assert "cannot be reached" in json.dumps(json.loads(alone.body))


@pytest.mark.parametrize("wire", list(Wire))
async def test_where_all_fail_the_last_ones_words_are_passed_on(wire: Wire) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        server.break_("one", Status(429))
        server.break_(
            "two", Status(503, {"retry-after": "7", "set-cookie": "a=b", "openai-organization": "org-secret"})
        )
        said = await door.ask()
        assert (said.status, said.headers["retry-after"]) == (503, "7")
        assert b"overloaded" in said.body.lower()
        assert "org-secret" not in str(said.headers) and "set-cookie" not in said.headers
        assert not door.books.told


@pytest.mark.parametrize(("status", "why"), [(402, "is empty"), (429, "try again later")])
async def test_what_may_name_the_account_is_told_in_our_own_words(status: int, why: str) -> None:
    alone = MemoryBooks(replace(ACCOUNT, preferences=()))
    async with model_server() as server, model_door(server, books=alone) as door:
        server.break_("one", Status(status, {"retry-after": "7"}))
        said = await door.ask()
        assert (said.status, said.headers["retry-after"]) == (status, "7")
        assert why in json.loads(said.body)["error"]["message"] and b"Rate limit reached" not in said.body


async def test_there_is_no_hurry_where_all_others_are_left_alone() -> None:
    settings = replace(QUICK, breaker=BreakerSettings(failures=1, open_seconds=600.0))
    gate = asyncio.Event()
    async with model_server() as server, model_door(server, settings=settings) as door:
        server.break_("two", Status(500))
        server.break_("one", Status(500))
        assert (await door.ask()).status == 500
        door.proxy._asker._breakers["one"].succeeded()
        server.mend("one")
        server.break_("one", Silent(gate))
        asked = asyncio.ensure_future(door.ask("say at last"))
        await until(lambda: len(server.asked("one")) == 2, "it is asked")
        await linger(3 * QUICK.first_byte_seconds)
        assert not asked.done()
        server.mend("one")
        gate.set()
        said = await asked
    assert said.status == 200 and b"last" in said.body


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_told_in_our_own_words(status: int) -> None:
    async with (
        model_server() as server,
        model_door(server, books=MemoryBooks(replace(ACCOUNT, preferences=()))) as door,
    ):
        server.break_("one", Status(status))
        said = await door.ask()
        assert said.status == status
        message = json.loads(said.body)["error"]["message"]
        assert "does not accept the key that the daemon has" in message
        assert "Incorrect" not in message, "the provider's own words may name the account"


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_what_is_wrong_with_the_question_itself_is_nobody_elses_to_answer(status: int) -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Status(status))
        said = await door.ask()
        assert said.status == status
        assert not server.asked("two")


async def test_an_error_that_is_too_long_to_be_passed_on_is_told_in_our_own_words_only() -> None:
    long = b'{"error": {"message": "' + b"x" * (200 << 10) + b'"}}'
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Garbage(long, "application/json", 400))
        said = await door.ask()
        assert said.status == 400
        assert "no words that could be passed on" in json.loads(said.body)["error"]["message"]


def _event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _failed(code: str) -> bytes:
    error = {"code": code, "message": "the words of the provider"}
    return _event({"type": "response.failed", "response": {"status": "failed", "error": error}})


_QUESTIONS_FAULT = {
    "long": (Wire.RESPONSES, _failed("context_length_exceeded")),
    "prompt": (Wire.RESPONSES, _failed("invalid_prompt")),
    "chat": (Wire.CHAT, _event({"error": {"code": 400, "message": "the words of the provider"}})),
    "messages": (
        Wire.MESSAGES,
        _event({"type": "error", "error": {"type": "invalid_request_error", "message": "the words of the provider"}}),
    ),
}


@pytest.mark.parametrize("which", list(_QUESTIONS_FAULT))
async def test_an_error_within_a_stream_that_is_about_the_question_is_passed_on(which: str) -> None:
    wire, body = _QUESTIONS_FAULT[which]
    settings = ProxySettings(breaker=BreakerSettings(failures=2))
    async with model_server() as server, model_door(server, wire, settings=settings) as door:
        server.break_("one", Garbage(body, "text/event-stream"), times=4)
        for _ in range(4):
            assert b"the words of the provider" in (await door.ask()).body
        assert not server.asked("two")
        assert door.metric("holdfast_model_breaker_open", provider="one") == 0.0
        await until(lambda: len(door.books.calls) == 4, "all are written down")
        assert all(call.error for call in door.books.calls)


async def test_streams_that_fail_for_one_thread_only_do_not_close_the_provider_for_all() -> None:
    settings = ProxySettings(breaker=BreakerSettings(failures=2))
    async with model_server() as server, model_door(server, Wire.RESPONSES, settings=settings) as door:
        server.break_("one", Garbage(_failed("server_error"), "text/event-stream"))
        for _ in range(4):
            assert (await door.ask()).status == 200
        assert len(server.asked("one")) == len(server.asked("two")) == 4
        door.books.the_account = replace(ACCOUNT, thread_id="thr_2")
        for _ in range(3):
            assert (await door.ask()).status == 200
        assert len(server.asked("one")) == 5, "now a second one has seen it"


async def test_a_probe_about_one_model_only_does_not_keep_others_from_the_provider() -> None:
    settings = ProxySettings(breaker=BreakerSettings(failures=1, open_seconds=0.2))
    alone = MemoryBooks(replace(ACCOUNT, preferences=()))
    async with model_server() as server, model_door(server, settings=settings, books=alone) as door:
        server.break_("one", Status(500), times=1)
        assert (await door.ask()).status == 500
        door.proxy._asker._breakers["one"]._settings = BreakerSettings(failures=1, open_seconds=600.0)
        await until(lambda: not door.proxy._asker._breakers["one"].seconds_left(), "it may be tried again")
        server.break_("one", Status(429), times=1)
        assert (await door.ask()).status == 429
        assert (await door.ask()).status == 200


_INVALID = {"reason": "API_KEY_INVALID", "domain": "googleapis.com"}
_KEY_INVALID = {"code": 400, "message": f"not {key_of('one')}", "status": "INVALID_ARGUMENT", "details": [_INVALID]}
_NO_CREDIT = {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}


@pytest.mark.parametrize(
    ("wire", "error", "meant"),
    [(Wire.GEMINI, _KEY_INVALID, 401), (Wire.MESSAGES, _NO_CREDIT, 402)],
    ids=["gemini-key", "anthropic-credit"],
)
async def test_a_bad_key_behind_400_is_one(wire: Wire, error: Mapping[str, object], meant: int) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        body = json.dumps({"type": "error", "error": error}).encode()
        server.break_("one", Garbage(body, "application/json", 400))
        said = await door.ask("say hello from the second")
        assert said.status == 200 and b"second" in said.body
        door.books.the_account = replace(ACCOUNT, preferences=())
        assert (await door.ask()).status == meant
        assert [call.status for call in door.books.calls] == [meant, 200, meant]


async def test_a_key_behind_400_is_read_again() -> None:
    class Changing(FixedKey):
        def refused(self) -> None:
            self._key = "new-key"

    async with model_server() as server:
        three = Provider(
            "three", ProviderKind.GEMINI, server.base_url("three"), Changing("old-key"), (), frozenset({Wire.GEMINI})
        )
        async with model_door(server, Wire.GEMINI, more=[three]) as door:
            body = json.dumps({"error": _KEY_INVALID}).encode()
            server.break_("three", Garbage(body, "application/json", 400), times=1)
            assert (await door.ask(provider="three", model="m3")).status == 200
            assert [seen.key for seen in server.asked("three")] == ["old-key", "new-key"]


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_no_error_that_is_passed_on_has_the_key_in_it(status: int) -> None:
    async with model_server() as server, model_door(server) as door:
        body = json.dumps({"error": {"message": f"asked with {key_of('one')}", "type": "x"}}).encode()
        server.break_("one", Garbage(body, "application/json", status), times=1)
        said = await door.ask()
        assert said.status == status and b"asked with [key]" in said.body
        server.break_("one", Garbage(b" " * 70_000 + body, "application/json", status), times=1)
        said = await door.ask()
        assert said.status == status and key_of("one").encode() not in said.body
        assert "no words that could be passed on" in json.loads(said.body)["error"]["message"]


async def test_a_switch_is_told_once_per_turn() -> None:
    async with model_server() as server, model_door(server) as door:
        server.break_("one", Status(429))
        for _ in range(3):
            await door.ask()
        await until(lambda: len(door.books.calls) == 6, "all calls are written down")
        assert len(door.books.told) == 1
        door.books.the_account = replace(ACCOUNT, turn_id="trn_2")
        await door.ask()
        await until(lambda: len(door.books.told) == 2, "it is told in the next turn")


async def test_only_models_that_may_be_used_are_candidates() -> None:
    account = replace(ACCOUNT, allowed_models=("one/*",))
    async with model_server() as server, model_door(server, books=MemoryBooks(account)) as door:
        server.break_("one", Status(500))
        assert (await door.ask()).status == 500
        assert not server.asked("two")


async def test_a_provider_that_keeps_failing_is_left_alone_and_then_tried_with_one_call() -> None:
    settings = ProxySettings(breaker=BreakerSettings(failures=3, open_seconds=0.5))
    async with model_server() as server, model_door(server, settings=settings) as door:
        server.break_("one", Status(500))
        for _ in range(5):
            assert (await door.ask()).status == 200
        assert len(server.asked("one")) == 3
        assert door.metric("holdfast_model_breaker_open", provider="one") == 1.0
        door.books.the_account = replace(ACCOUNT, preferences=())
        alone = await door.ask()
        assert alone.status == 503 and int(alone.headers["retry-after"]) >= 1
        server.mend("one")
        await eventually(door)
        assert door.metric("holdfast_model_breaker_open", provider="one") == 0.0
        assert len(server.asked("one")) == 4


async def test_a_key_that_was_changed_a_moment_ago_is_read_again() -> None:
    class Changing(FixedKey):
        def __init__(self) -> None:
            super().__init__("old-key")

        def refused(self) -> None:
            self._key = "new-key"

    async with model_server() as server:
        url = server.base_url("three") + "/v1"
        three = Provider("three", ProviderKind.OPENAI, url, Changing(), (), frozenset({Wire.CHAT}))
        async with model_door(server, more=[three]) as door:
            server.break_("three", Status(401), times=1)
            assert (await door.ask(provider="three", model="m3")).status == 200
            assert [seen.key for seen in server.asked("three")] == ["old-key", "new-key"]
            assert not server.asked("two")


async def eventually(door: Door) -> None:
    """Ask until there is an answer."""

    async def answered() -> bool:
        return (await door.ask()).status == 200

    await until(answered, "there is an answer", 30, every=0.1)


# -- streams that break ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", list(Wire))
async def test_a_stream_that_breaks_ends_with_an_error_and_not_as_if_it_were_whole(wire: Wire) -> None:
    async with model_server() as server, model_door(server, wire) as door:
        pieces = len(list(events_of((await door.ask("say one two three four five six")).body)))
        assert pieces > 5
        server.break_("one", Cut(pieces // 2))
        said = await door.ask("say one two three four five six")
        assert said.status == 200
        name, last = list(events_of(said.body))[-1]
        match wire:
            case Wire.CHAT:
                assert isinstance(last, dict) and "broke off" in last["error"]["message"]
            case Wire.RESPONSES:
                assert isinstance(last, dict) and (name, last["type"]) == ("response.failed", "response.failed")
                assert "broke off" in last["response"]["error"]["message"]
                assert isinstance(last["sequence_number"], int), "OpenCode skips what has none"
            case Wire.MESSAGES:
                assert isinstance(last, dict) and (name, last["type"]) == ("error", "error")
                assert "broke off" in last["error"]["message"]
            case Wire.GEMINI:
                assert isinstance(last, dict) and last["error"]["status"] == "UNAVAILABLE"
        assert b"[DONE]" not in said.body and b"message_stop" not in said.body
        assert not server.asked("two"), "what the agent has seen of it cannot be taken back"
        await until(lambda: len(door.books.calls) == 2, "it is written down")
        assert door.books.calls[-1].error is not None
        assert door.books.calls[-1].tokens.output > 0, "what was said of it is not free"


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.RESPONSES, Wire.MESSAGES])
async def test_a_stream_that_breaks_before_its_first_word_can_be_asked_again(wire: Wire) -> None:
    books = MemoryBooks(replace(ACCOUNT, retry_broken_streams=True, preferences=()))
    async with model_server() as server, model_door(server, wire, books=books) as door:
        server.break_("one", Cut(1), times=1)
        said = await door.ask("say hello again")
        assert said.status == 200 and b"again" in said.body and b"broke" not in said.body
        assert len(server.asked("one")) == 2
