"""Which requests are forwarded, where to, and what their bodies become."""

import json

import pytest

from holdfast.broker.models.intake.question import BadQuestion, Question
from holdfast.broker.models.providers import endpoints
from holdfast.broker.models.providers.catalogue import WIRES, Provider, ProviderKind
from holdfast.broker.models.providers.endpoints import Operation
from holdfast.vocabulary.models import Wire


def provider(kind: ProviderKind) -> Provider:
    return Provider("p", kind, "https://p.example", None, (), frozenset(WIRES[kind]))


@pytest.mark.parametrize(
    ("kind", "method", "rest", "wire", "operation", "path"),
    [
        (ProviderKind.OPENAI, "POST", "v1/chat/completions", Wire.CHAT, Operation.ANSWER, "/chat/completions"),
        (ProviderKind.OPENAI, "POST", "chat/completions", Wire.CHAT, Operation.ANSWER, "/chat/completions"),
        (ProviderKind.OPENAI, "POST", "v1/responses/compact", Wire.RESPONSES, Operation.ANSWER, "/responses/compact"),
        (ProviderKind.COMPATIBLE, "POST", "v1/embeddings", Wire.CHAT, Operation.EMBED, "/embeddings"),
        (ProviderKind.COMPATIBLE, "GET", "v1/models", Wire.CHAT, Operation.LIST, "/models"),
        (ProviderKind.ANTHROPIC, "POST", "v1/messages", Wire.MESSAGES, Operation.ANSWER, "/v1/messages"),
        (ProviderKind.ANTHROPIC, "GET", "v1/models/claude-x", Wire.MESSAGES, Operation.LIST, "/v1/models/claude-x"),
        (
            ProviderKind.GEMINI,
            "POST",
            "v1beta/models/m:countTokens",
            Wire.GEMINI,
            Operation.COUNT,
            "/v1beta/models/m:countTokens",
        ),
        (
            ProviderKind.GEMINI,
            "POST",
            "v1/models/m:generateContent",
            Wire.GEMINI,
            Operation.ANSWER,
            "/v1/models/m:generateContent",
        ),
        (ProviderKind.DEMO, "POST", "v1/chat/completions", Wire.CHAT, Operation.ANSWER, "/v1/chat/completions"),
    ],
)
def test_endpoints(kind: ProviderKind, method: str, rest: str, wire: Wire, operation: Operation, path: str) -> None:
    found = endpoints.find(provider(kind), method, rest)
    assert found is not None
    assert (found.wire, found.operation) == (wire, operation)
    assert found.path_at(provider(kind), found.model or "x") == path


@pytest.mark.parametrize(
    ("kind", "method", "rest"),
    [
        (ProviderKind.COMPATIBLE, "POST", "v1/responses/compact"),
        (ProviderKind.OPENAI, "POST", "v1/messages/count_tokens"),
        (ProviderKind.OPENAI, "POST", "v1/chat/completions/../files"),
        (ProviderKind.OPENAI, "POST", "v1/chat/completions/"),
        (ProviderKind.OPENAI, "PUT", "v1/chat/completions"),
        (ProviderKind.OPENAI, "GET", "v1/models/a/b"),
        (ProviderKind.OPENAI, "GET", "v1/models/%2e%2e"),
        (ProviderKind.OPENAI, "GET", "v1/models/.."),
        (ProviderKind.ANTHROPIC, "GET", "v1/models/."),
        (ProviderKind.ANTHROPIC, "POST", "v1/embeddings"),
        (ProviderKind.GEMINI, "POST", "v1beta/models/a/b:generateContent"),
        (ProviderKind.GEMINI, "POST", "v1beta/models/m:generateContent:x"),
        (ProviderKind.OPENAI, "POST", ""),
    ],
)
def test_no_endpoints(kind: ProviderKind, method: str, rest: str) -> None:
    assert endpoints.find(provider(kind), method, rest) is None


def test_a_model_in_the_path_is_quoted_again() -> None:
    found = endpoints.find(provider(ProviderKind.GEMINI), "POST", "v1beta/models/a%2F..%2Fb:generateContent")
    assert found is not None and found.model == "a/../b"
    assert found.path_at(provider(ProviderKind.GEMINI), "x/../y") == "/v1beta/models/x%2F..%2Fy:generateContent"


def question(body: object, kind: ProviderKind = ProviderKind.OPENAI, rest: str = "v1/chat/completions") -> Question:
    endpoint = endpoints.find(provider(kind), "POST", rest)
    assert endpoint is not None
    return Question(endpoint, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_the_same_question_for_another_model() -> None:
    asked = question({"messages": [{"content": "ä \U0001f600"}], "model": "a", "stream": True, "n": 1.5})
    assert (asked.model, asked.streamed, asked.must_ask_for_usage()) == ("a", True, True)
    told = json.loads(asked.put_to("b", with_usage=True))
    options = {"include_usage": True}
    assert told == {
        "messages": [{"content": "ä \U0001f600"}],
        "model": "b",
        "stream": True,
        "n": 1.5,
        "stream_options": options,
    }
    assert "stream_options" not in json.loads(asked.put_to("b", with_usage=False))
    assert not question({"model": "a", "stream": True, "stream_options": options}).must_ask_for_usage()
    assert not question({"model": "a"}).must_ask_for_usage()


def test_where_the_path_names_the_model_the_body_is_left_alone() -> None:
    asked = question({"contents": [], "model": "x"}, ProviderKind.GEMINI, "v1beta/models/m:streamGenerateContent")
    assert asked.model == "m" and asked.streamed
    assert json.loads(asked.put_to("other", with_usage=True)) == {"contents": [], "model": "x"}


def test_what_could_mean_two_things_means_one() -> None:
    asked = question(b'{"model": "cheap", "model": "dear"}')
    assert asked.model == "dear"
    assert asked.put_to("dear", with_usage=False) == b'{"model":"dear"}'


def test_half_of_a_character_passes() -> None:
    asked = question(b'{"model": "a", "text": "cut \\ud83d"}')
    assert json.loads(asked.put_to("a", with_usage=False)) == {"model": "a", "text": "cut \ud83d"}


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"1", b"\xff", b'{"a": Infinity}', b"[" * 100_000])
def test_no_question(body: bytes) -> None:
    with pytest.raises(BadQuestion):
        question(body)


@pytest.mark.parametrize("value", ["true", 1, [], {}])
@pytest.mark.parametrize("name", ["stream", "background"])
def test_what_might_mean_yes_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadQuestion, match=f"{name} must be true or false"):
        question({"model": "a", name: value})


@pytest.mark.parametrize("name", ["models", "fallbacks"])
def test_a_question_names_one_model(name: str) -> None:
    with pytest.raises(BadQuestion, match=f"{name} is not taken"):
        question({"model": "a", name: ["dear/model"]})
    assert question({"model": "a", name: []}).model == "a"


def test_how_long_an_answer_may_be() -> None:
    assert question({"model": "a"}).most_output(7) == 7
    assert question({"model": "a", "max_tokens": 10, "n": 3}).most_output(7) == 30
    assert question({"model": "a", "max_completion_tokens": 5, "max_tokens": "x"}).most_output(7) == 5
    options = {"maxOutputTokens": 9, "candidateCount": 2}
    asked = question({"generationConfig": options}, ProviderKind.GEMINI, "v1beta/models/m:generateContent")
    assert asked.most_output(7) == 18


@pytest.mark.parametrize("model", [None, "", 3, ["a"]])
def test_no_model(model: object) -> None:
    with pytest.raises(BadQuestion, match="names no model"):
        _ = question({"model": model}).model


@pytest.mark.parametrize(
    ("kind", "rest", "may"),
    [
        (ProviderKind.OPENAI, "v1/chat/completions", True),
        (ProviderKind.OPENAI, "v1/responses", True),
        (ProviderKind.OPENAI, "v1/responses/compact", False),
        (ProviderKind.OPENAI, "v1/embeddings", False),
        (ProviderKind.ANTHROPIC, "v1/messages", True),
        (ProviderKind.ANTHROPIC, "v1/messages/count_tokens", False),
        (ProviderKind.GEMINI, "v1beta/models/m:generateContent", True),
        (ProviderKind.GEMINI, "v1beta/models/m:countTokens", False),
    ],
)
def test_only_answers_may_be_translated(kind: ProviderKind, rest: str, may: bool) -> None:
    found = endpoints.find(provider(kind), "POST", rest)
    assert found is not None and found.may_be_translated is may
