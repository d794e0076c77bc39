"""The demo model in each dialect: the same script comes out the same, and usage stands where providers put it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.broker.demo import MODEL, DemoReply, reply, wire_of
from holdfast.vocabulary.models import Wire
from support.servers.model_server import events_of

Json = dict[str, Any]  # documents of others, looked into at every depth
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PATHS = {
    Wire.CHAT: "/v1/chat/completions",
    Wire.RESPONSES: "/v1/responses",
    Wire.MESSAGES: "/v1/messages",
    Wire.GEMINI: "/v1beta/models/demo-1:streamGenerateContent?alt=sse",
}
Turn = tuple[str, str]
"""Who, and what: ``user``, ``model``, ``call``, ``result``."""


def _chat(said: list[Turn]) -> Json:
    made: Mapping[str, Callable[[str], Json]] = {
        "user": lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
        "model": lambda text: {"role": "assistant", "content": text},
        "call": lambda text: {"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": text}}]},
        "result": lambda text: {"role": "tool", "tool_call_id": "1", "content": text},
    }
    tools = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
    messages = [{"role": "system", "content": "Be good."}, *(made[who](text) for who, text in said)]
    return {"model": "demo-1", "messages": messages, "tools": tools, "stream_options": {"include_usage": True}}


def _responses(said: list[Turn]) -> Json:
    made: Mapping[str, Callable[[str], Json]] = {
        "user": lambda text: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        "model": lambda text: {"role": "assistant", "content": [{"type": "output_text", "text": text}]},
        "call": lambda text: {"type": "function_call", "call_id": "1", "name": "bash", "arguments": text},
        "result": lambda text: {"type": "function_call_output", "call_id": "1", "output": text},
    }
    tools = [{"type": "function", "name": "bash", "parameters": SCHEMA}]
    items = [made[who](text) for who, text in said]
    return {"model": "demo-1", "instructions": "Be good.", "input": items, "tools": tools}


def _messages(said: list[Turn]) -> Json:
    made: Mapping[str, Callable[[str], Json]] = {
        "user": lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
        "model": lambda text: {"role": "assistant", "content": text},
        "call": lambda text: {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "input": {"a": text}}]},
        "result": lambda text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": text}],
        },
    }
    tools = [{"name": "bash", "input_schema": SCHEMA}]
    messages = [made[who](text) for who, text in said]
    return {"model": "demo-1", "system": [{"type": "text", "text": "Be good."}], "messages": messages, "tools": tools}


def _gemini(said: list[Turn]) -> Json:
    made: Mapping[str, Callable[[str], Json]] = {
        "user": lambda text: {"role": "user", "parts": [{"text": text}]},
        "model": lambda text: {"role": "model", "parts": [{"text": text}]},
        "call": lambda text: {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {"a": text}}}]},
        "result": lambda text: {
            "role": "user",
            "parts": [{"functionResponse": {"name": "bash", "response": {"output": text}}}],
        },
    }
    tools = [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}]
    contents = [made[who](text) for who, text in said]
    return {"systemInstruction": {"parts": [{"text": "Be good."}]}, "contents": contents, "tools": tools}


REQUESTS = {Wire.CHAT: _chat, Wire.RESPONSES: _responses, Wire.MESSAGES: _messages, Wire.GEMINI: _gemini}


class Heard:
    """What an agent would make of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.thought = ""
        self.calls: list[tuple[str, Json]] = []
        self.usage = (0, 0, 0)
        """Input with what was cached, of that cached, output."""
        self.error = ""
        self.reason = ""


def ask(wire: Wire, *said: Turn, streamed: bool = True, **more: object) -> DemoReply:
    body = {**REQUESTS[wire](list(said)), **more}
    path = PATHS[wire]
    if wire is Wire.GEMINI:
        path = path if streamed else "/v1beta/models/demo-1:generateContent"
    else:
        body["stream"] = streamed
    return reply("POST", path, json.dumps(body).encode())


def content(answer: DemoReply) -> bytes:
    return b"".join(piece.data for piece in answer.pieces)


def hear(wire: Wire, answer: DemoReply) -> Heard:
    heard = Heard()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [(name, data) for name, data in events_of(content(answer))]
    _LISTENERS[wire](events, heard)
    return heard


def _hear_chat(events: list[tuple[str | None, Any]], heard: Heard) -> None:
    arguments = ""
    assert events[-1][1] == "[DONE]" or "error" in events[-1][1]
    for _name, data in events:
        if data == "[DONE]":
            continue
        if "error" in data:
            heard.error = data["error"]["message"]
            continue
        if "usage" in data:
            assert data["choices"] == []
            usage = data["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            heard.usage = (usage["prompt_tokens"], cached, usage["completion_tokens"])
            assert usage["total_tokens"] == heard.usage[0] + heard.usage[2]
            continue
        delta = data["choices"][0]["delta"]
        heard.reason = data["choices"][0]["finish_reason"] or heard.reason
        heard.text += delta.get("content") or ""
        heard.thought += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", []):
            arguments += call["function"]["arguments"]
            if "name" in call["function"]:
                heard.calls.append((call["function"]["name"], {}))
    if arguments:
        heard.calls[0] = (heard.calls[0][0], json.loads(arguments))


def _hear_responses(events: list[tuple[str | None, Any]], heard: Heard) -> None:
    assert [data["sequence_number"] for _name, data in events] == list(range(len(events)))
    for name, data in events:
        assert name == data["type"]
        if name == "response.output_text.delta":
            heard.text += data["delta"]
        elif name == "response.reasoning_summary_text.delta":
            heard.thought += data["delta"]
        elif name == "response.output_item.done" and data["item"]["type"] == "function_call":
            heard.calls.append((data["item"]["name"], json.loads(data["item"]["arguments"])))
        elif name == "response.failed":
            heard.error = data["response"]["error"]["message"]
        elif name == "response.completed":
            usage = data["response"]["usage"]
            cached = usage["input_tokens_details"]["cached_tokens"]
            heard.usage = (usage["input_tokens"], cached, usage["output_tokens"])
            heard.reason = data["response"]["status"]
    assert events[-1][0] in ("response.completed", "response.failed")


def _hear_messages(events: list[tuple[str | None, Any]], heard: Heard) -> None:
    start: Json = {}
    arguments = ""
    for name, data in events:
        assert name == data["type"]
        if name == "message_start":
            start = data["message"]["usage"]
        elif name == "content_block_start" and data["content_block"]["type"] == "tool_use":
            heard.calls.append((data["content_block"]["name"], {}))
        elif name == "content_block_delta":
            heard.text += data["delta"].get("text", "")
            heard.thought += data["delta"].get("thinking", "")
            arguments += data["delta"].get("partial_json", "")
        elif name == "message_delta":
            cached = start["cache_read_input_tokens"]
            heard.usage = (start["input_tokens"] + cached, cached, data["usage"]["output_tokens"])
            heard.reason = data["delta"]["stop_reason"]
        elif name == "error":
            heard.error = data["error"]["message"]
    if arguments:
        heard.calls[0] = (heard.calls[0][0], json.loads(arguments))
    assert events[-1][0] in ("message_stop", "error")


def _hear_gemini(events: list[tuple[str | None, Any]], heard: Heard) -> None:
    for _name, data in events:
        if "error" in data:
            heard.error = data["error"]["message"]
            continue
        candidate = data["candidates"][0]
        heard.reason = candidate.get("finishReason", "")
        for part in candidate["content"]["parts"]:
            if "functionCall" in part:
                heard.calls.append((part["functionCall"]["name"], part["functionCall"]["args"]))
            elif part.get("thought"):
                heard.thought += part["text"]
            else:
                heard.text += part["text"]
        usage = data["usageMetadata"]
        cached = usage.get("cachedContentTokenCount", 0)
        heard.usage = (usage["promptTokenCount"], cached, usage.get("candidatesTokenCount", 0))


_LISTENERS = {
    Wire.CHAT: _hear_chat,
    Wire.RESPONSES: _hear_responses,
    Wire.MESSAGES: _hear_messages,
    Wire.GEMINI: _hear_gemini,
}

each_wire = pytest.mark.parametrize("wire", list(Wire))


@each_wire
def test_it_says_what_it_is_told_to(wire: Wire) -> None:
    heard = hear(wire, ask(wire, ("user", "think hm hm\nsay hello out there\nsay bye")))
    assert (heard.text, heard.thought) == ("hello out there\nbye\n", "hm hm\n")
    assert heard.reason in ("stop", "completed", "end_turn", "STOP")
    assert heard.calls == []


@each_wire
def test_it_uses_the_shell_step_by_step(wire: Wire) -> None:
    script = ("user", "say one\nrun echo two\nsay three\nwait-for /tmp/go\nsay four")
    first = hear(wire, ask(wire, script))
    assert (first.text, first.calls) == ("one\n", [("bash", {"command": "echo two"})])
    assert first.reason in ("tool_calls", "completed", "tool_use", "STOP")
    so_far = [script, ("model", "one"), ("call", "{}"), ("result", "two")]
    second = hear(wire, ask(wire, *so_far))
    assert second.text == "three\n"
    assert "until [ -e /tmp/go ]" in second.calls[0][1]["command"]
    last = hear(wire, ask(wire, *so_far, ("model", "three"), ("call", "{}"), ("result", "")))
    assert (last.text, last.calls) == ("four\n", [])


@each_wire
def test_a_script_that_ends_with_a_tool_still_gets_a_last_word(wire: Wire) -> None:
    heard = hear(wire, ask(wire, ("user", "run true"), ("call", "{}"), ("result", "")))
    assert (heard.text, heard.calls) == ("Done.", [])


@each_wire
def test_usage_is_where_the_provider_puts_it(wire: Wire) -> None:
    heard = hear(wire, ask(wire, ("user", "say hello out there")))
    assert heard.usage == (7, 0, 4)  # "Be good." is 2, the prompt 5; four characters each
    later = [("user", "say hello out there"), ("model", "hello out there"), ("user", "say bye")]
    assert hear(wire, ask(wire, *later)).usage == (13, 7, 1)


@each_wire
def test_the_whole_answer_has_the_same_usage(wire: Wire) -> None:
    said = [("user", "say hello out there"), ("model", "hello out there"), ("user", "say bye")]
    whole = json.loads(content(ask(wire, *said, streamed=False)))
    usage = whole.get("usage") or whole["usageMetadata"]
    assert "bye" in json.dumps(whole)
    read = {
        Wire.CHAT: lambda: (usage["prompt_tokens"], usage["completion_tokens"]),
        Wire.RESPONSES: lambda: (usage["input_tokens"], usage["output_tokens"]),
        Wire.MESSAGES: lambda: (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]),
        Wire.GEMINI: lambda: (usage["promptTokenCount"], usage["candidatesTokenCount"]),
    }
    assert read[wire]() == (13, 1)


def test_chat_streams_tell_no_usage_unless_asked() -> None:
    assert hear(Wire.CHAT, ask(Wire.CHAT, ("user", "say hello"), stream_options=None)).usage == (0, 0, 0)


@each_wire
def test_it_remembers_only_what_is_in_the_request(wire: Wire) -> None:
    before = [("user", "say the number is 4711"), ("model", "the number is 4711")]
    assert hear(wire, ask(wire, *before, ("user", "recall number is 4711"))).text == "yes\n"
    assert hear(wire, ask(wire, *before, ("user", "recall number is 42"))).text == "no\n"
    assert hear(wire, ask(wire, *before, ("user", "history"))).text == "I remember 2 messages\n"


@each_wire
@pytest.mark.parametrize(
    ("line", "status"), [("fail no_model it burns", 400), ("fail 429 it burns", 429), ("fail overloaded it burns", 529)]
)
def test_a_failure_is_the_answers_status(wire: Wire, line: str, status: int) -> None:
    answer = ask(wire, ("user", line))
    assert answer.status == status
    error = json.loads(content(answer))["error"]
    assert error["message"] == "it burns"
    if wire is Wire.GEMINI:
        assert error["code"] == status


@each_wire
def test_a_failure_after_words_is_in_the_stream(wire: Wire) -> None:
    heard = hear(wire, ask(wire, ("user", "say hello\nfail 500 it burns\nsay never")))
    assert (heard.text, heard.error) == ("hello\n", "it burns")
    assert ask(wire, ("user", "say hello\nfail 500 it burns"), streamed=False).status == 500


@each_wire
def test_it_waits_before_the_words_that_come_after(wire: Wire) -> None:
    pieces = list(ask(wire, ("user", "say before\nsleep 1.5\nsay after")).pieces)
    late = next(number for number, piece in enumerate(pieces) if piece.after)
    assert [piece.after for piece in pieces if piece.after] == [1.5]
    told = [b"".join(piece.data for piece in part) for part in (pieces[:late], pieces[late:])]
    assert b"before" in told[0]
    assert b"after" not in told[0]
    assert b"after" in told[1]


@each_wire
def test_other_text_is_answered_with_what_this_is(wire: Wire) -> None:
    text = hear(wire, ask(wire, ("user", "Hello! Can you write me a program?"))).text
    for word in ("demo model", "no intelligence", "say hello", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        assert word in text


@each_wire
def test_an_agent_that_wants_a_title_gets_one(wire: Wire) -> None:
    system = "You are a title generator. You output ONLY a thread title."
    more: dict[Wire, Json] = {
        Wire.CHAT: {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "run rm -r x"}]},
        Wire.RESPONSES: {"instructions": system},
        Wire.MESSAGES: {"system": system},
        Wire.GEMINI: {"systemInstruction": {"parts": [{"text": system}]}},
    }
    heard = hear(wire, ask(wire, ("user", "run rm -r x"), tools=[], **more[wire]))
    assert (heard.text, heard.calls) == ("run rm -r x", [])


def test_a_title_in_json_with_the_message_in_tags() -> None:
    form = {"type": "object", "properties": {"title": {"type": "string"}}}
    asked = "<session>\nsay hello\n</session>\n\nWrite the title in the language of the session."
    more: Json = {"tools": [], "output_config": {"format": {"type": "json_schema", "schema": form}}}
    assert json.loads(hear(Wire.MESSAGES, ask(Wire.MESSAGES, ("user", asked), **more)).text) == {"title": "say hello"}


def test_who_speaks_next_is_the_user() -> None:
    properties = {"reasoning": {"type": "string"}, "next_speaker": {"type": "string", "enum": ["model", "user"]}}
    form = {"responseJsonSchema": {"type": "object", "properties": properties}}
    heard = hear(Wire.GEMINI, ask(Wire.GEMINI, ("user", "say hello"), tools=[], generationConfig=form))
    assert json.loads(heard.text)["next_speaker"] == "user"


@each_wire
def test_a_conversation_is_summed_up_without_running_it(wire: Wire) -> None:
    wish = "Please provide a detailed summary of our conversation above. " * 5
    heard = hear(wire, ask(wire, ("user", "say the number is 4711"), ("model", "the number is 4711"), ("user", wish)))
    assert "the number is 4711" in heard.text


@each_wire
def test_without_a_shell_tool_it_says_so(wire: Wire) -> None:
    assert "no shell tool" in hear(wire, ask(wire, ("user", "run ls"), tools=[])).text


def test_a_gemini_stream_without_events_is_one_list() -> None:
    body = json.dumps(_gemini([("user", "say hello")])).encode()
    answer = reply("POST", "/v1beta/models/demo-1:streamGenerateContent", body)
    assert [part["candidates"][0]["finishReason"] for part in json.loads(content(answer))] == ["STOP"]


def test_models_and_counted_tokens() -> None:
    assert json.loads(content(reply("GET", "/v1/models", b"")))["data"][0]["id"] == MODEL.name
    assert json.loads(content(reply("GET", "/v1/models/demo-1", b"")))["id"] == MODEL.name
    body = json.dumps(_messages([("user", "say hello out there")])).encode()
    assert json.loads(content(reply("POST", "/v1/messages/count_tokens?beta=true", body))) == {"input_tokens": 7}
    count = reply("POST", "/v1beta/models/demo-1:countTokens", json.dumps(_gemini([("user", "say hello")])).encode())
    assert json.loads(content(count))["totalTokens"] == 5


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/messages", b"{", 400),
        ("POST", "/v1/messages", b"[]", 400),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("GET", "/v1/messages", b"", 404),
        ("POST", "/v1beta/models/demo-1:embedContent", b"{}", 404),
        ("POST", "/v1/chat/completions", b'{"messages": [7, null, {"content": {"x": 1}}], "tools": [null]}', 200),
    ],
)
def test_what_it_does_not_understand(method: str, path: str, body: bytes, status: int) -> None:
    assert reply(method, path, body).status == status


def test_dialects_are_known_by_their_paths() -> None:
    assert {wire_of(path): path for path in PATHS.values()} == PATHS
    assert wire_of("/v1/models") is None


IMAGES: Mapping[Wire, Json] = {
    Wire.CHAT: {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    Wire.RESPONSES: {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    Wire.MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    Wire.GEMINI: {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
}


@pytest.mark.parametrize("wire", list(Wire))
def test_it_tells_which_files_and_images_it_was_shown(wire: Wire) -> None:
    words = "attachments\n\n<attachments>\n- /w/a b.txt\n</attachments>"
    body = REQUESTS[wire]([("user", "attachments"), ("model", "no attachments"), ("user", words)])
    said = body.get("messages") or body.get("input") or body["contents"]
    said[-1]["parts" if wire is Wire.GEMINI else "content"].append(IMAGES[wire])
    answer = reply("POST", PATHS[wire], json.dumps({**body, "stream": True}).encode())
    assert hear(wire, answer).text.strip() == "/w/a b.txt [image/png of 3 bytes]"
    shortened = json.dumps({**body, "stream": True}).replace("AAAA", "AAAA[+3996 bytes]").encode()
    assert hear(wire, reply("POST", PATHS[wire], shortened)).text.strip() == "/w/a b.txt [image/png of 3000 bytes]"
