"""Questions in each dialect: what is written is read again, and what real agents send is understood."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.json import dumped
from holdfast.broker.dialects.lacks import CannotCarry, Target
from holdfast.broker.dialects.question import (
    Choice,
    Choosing,
    CommonQuestion,
    Form,
    Image,
    LinkedImage,
    Message,
    Part,
    Role,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    merged,
)
from holdfast.broker.dialects.schemas import from_openapi
from holdfast.vocabulary.models import Wire

TARGET = Target("m", 100_000)
OPENAI = (Wire.CHAT, Wire.RESPONSES)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PNG = Image("image/png", "iVBORw0KGgo=")
each_wire = pytest.mark.parametrize("wire", list(Wire))

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda text: text.strip())
names = st.from_regex(re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", re.ASCII), fullmatch=True)
objects = st.dictionaries(texts, st.one_of(texts, st.integers(-1000, 1000), st.booleans(), st.none()), max_size=3)


@st.composite
def conversations(draw: st.DrawFn, wire: Wire) -> list[Message]:
    found = [Message(Role.SYSTEM, (Text(draw(texts)),))] if draw(st.booleans()) else []
    waiting: list[ToolCall] = []
    images = [st.just(PNG)] + ([st.just(LinkedImage("https://x.example/a.png"))] if wire is not Wire.GEMINI else [])
    for turn in range(draw(st.integers(1, 3))):
        parts: list[Part] = [draw(results(wire, call)) for call in waiting]
        parts += draw(st.lists(st.one_of(texts.map(Text), *images), min_size=0 if parts else 1, max_size=3))
        found.append(Message(Role.USER, tuple(parts)))
        waiting = [
            ToolCall(f"call_{turn}_{number}", draw(names), dumped(draw(objects)))
            for number in range(draw(st.integers(0, 2)))
        ]
        said: list[Part] = [Text(draw(texts))] if not waiting or draw(st.booleans()) else []
        found.append(Message(Role.MODEL, (*said, *waiting)))
    return found


@st.composite
def results(draw: st.DrawFn, wire: Wire, call: ToolCall) -> ToolResult:
    parts: list[Text | Image | LinkedImage] = [Text(draw(texts))] if draw(st.booleans()) else []
    if wire in (Wire.RESPONSES, Wire.MESSAGES) and draw(st.booleans()):
        parts.append(PNG)
    failed = wire in (Wire.MESSAGES, Wire.GEMINI) and draw(st.booleans())
    return ToolResult(call.id, call.name, tuple(parts), failed)


@st.composite
def talks(draw: st.DrawFn, wire: Wire) -> CommonQuestion:
    """Whatever this dialect has words for."""
    strict = st.booleans() if wire in OPENAI else st.just(False)
    schemas = objects.map(lambda extra: {"type": "object", "properties": {key: {} for key in extra}})
    one = st.builds(Tool, names, st.one_of(st.just(""), texts), schemas, strict)
    tools = draw(st.lists(one, max_size=2, unique_by=lambda tool: tool.name))
    plain = [Choice(), Choice(Choosing.NONE), Choice(Choosing.ANY)]
    choice = (
        draw(st.sampled_from([*plain, *(Choice(Choosing.ONE, tool.name) for tool in tools)])) if tools else Choice()
    )
    parallels: dict[Wire, list[bool | None]] = {Wire.GEMINI: [None], Wire.MESSAGES: [None, False]}
    parallel = (
        draw(st.sampled_from(parallels.get(wire, [None, True, False])))
        if tools and choice.how is not Choosing.NONE
        else None
    )
    most = st.integers(16, 1000)
    form = None
    if draw(st.booleans()):
        form = Form({"type": "object", "properties": {}}, draw(names), draw(strict)) if wire in OPENAI else Form(SCHEMA)
    few = st.one_of(st.none(), st.floats(0.1, 0.9))
    return CommonQuestion(
        model="" if wire is Wire.GEMINI else "m",
        messages=draw(conversations(wire)),
        tools=tools,
        choice=choice,
        parallel=parallel,
        max_tokens=draw(most if wire is Wire.MESSAGES else st.one_of(st.none(), most)),
        temperature=draw(few),
        top_p=draw(few),
        top_k=draw(st.one_of(st.none(), st.integers(1, 99))) if wire in (Wire.MESSAGES, Wire.GEMINI) else None,
        stop=() if wire is Wire.RESPONSES else tuple(draw(st.lists(texts, max_size=2))),
        streamed=False if wire is Wire.GEMINI else draw(st.booleans()),
        form=form,
    )


@each_wire
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_again(wire: Wire, data: st.DataObject) -> None:
    talk = data.draw(talks(wire))
    read = DIALECTS[wire].read_question(DIALECTS[wire].write_question(talk, TARGET))
    assert replace(read, messages=merged(read.messages)) == replace(talk, messages=merged(talk.messages))


# -- as agents word them -----------------------------------------------------------------------------------------------

CALL = ToolCall("call_1", "bash", '{"command":"ls"}')
ASKED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {
        "model": "gpt",
        "messages": [
            {"role": "developer", "content": "Be good."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG.data}"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA, "strict": False}}],
        "max_completion_tokens": 500,
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "reasoning_effort": "high",
        "prompt_cache_key": "k",
    },
    Wire.RESPONSES: {
        "model": "gpt",
        "instructions": "Be good.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look."},
                    {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG.data}"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "arguments": CALL.arguments},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        ],
        "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}],
        "max_output_tokens": 500,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"verbosity": "low"},
    },
    Wire.MESSAGES: {
        "model": "claude",
        "system": [{"type": "text", "text": "Be good.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.data}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "tool_use", "id": "call_1", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt"}]},
        ],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
        "max_tokens": 500,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "u"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    },
    Wire.GEMINI: {
        "systemInstruction": {"role": "user", "parts": [{"text": "Be good."}]},
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Look."}, {"inlineData": {"mimeType": "image/png", "data": PNG.data}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"functionCall": {"name": "bash", "args": {"command": "ls"}}, "thoughtSignature": "c2ln"},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": "a.txt"}}}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "bash",
                        "parameters": {
                            "type": "OBJECT",
                            "properties": {"command": {"type": "STRING"}},
                            "required": ["command"],
                        },
                    }
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 500, "thinkingConfig": {"includeThoughts": True}},
    },
}


@each_wire
def test_questions_of_agents_are_understood(wire: Wire) -> None:
    talk = DIALECTS[wire].read_question(ASKED[wire])
    assert talk.lacks == ()
    assert merged(talk.messages) == [
        Message(Role.SYSTEM, (Text("Be good."),)),
        Message(Role.USER, (Text("Look."), PNG)),
        Message(Role.MODEL, (Thought("hm"), CALL)),
        Message(Role.USER, (ToolResult("call_1", "bash", (Text("a.txt"),)),)),
    ]
    assert talk.tools == [Tool("bash", "", SCHEMA)]
    assert (talk.max_tokens, talk.streamed) == (500, wire is not Wire.GEMINI)


@each_wire
@pytest.mark.parametrize("to", list(Wire))
def test_nothing_of_them_is_lost_on_the_way(wire: Wire, to: Wire) -> None:
    """But what the model thought: another provider does not take it."""
    talk = DIALECTS[wire].read_question(ASKED[wire])
    read = DIALECTS[to].read_question(DIALECTS[to].write_question(talk, TARGET))
    expected = [Message(Role.MODEL, (CALL,)) if one.role is Role.MODEL else one for one in merged(talk.messages)]
    assert merged(read.messages) == expected
    assert (read.tools, read.max_tokens) == (talk.tools, 500)


UNCARRIED: list[tuple[Wire, dict[str, Any], str]] = [
    (Wire.CHAT, {"n": 2}, "several answers"),
    (Wire.CHAT, {"logprobs": True}, "logprobs"),
    (Wire.CHAT, {"web_search_options": {"a": 1}}, "web_search_options"),
    (Wire.CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input_audio"),
    (Wire.RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (Wire.RESPONSES, {"tools": [{"type": "web_search"}]}, "the tool web_search"),
    (Wire.RESPONSES, {"tools": [{"type": "custom", "name": "apply_patch"}]}, "apply_patch"),
    (Wire.RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    (Wire.RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input_file"),
    (Wire.MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
    (Wire.MESSAGES, {"container": "c"}, "container"),
    (
        Wire.MESSAGES,
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
        "image by file",
    ),
    (Wire.GEMINI, {"cachedContent": "cachedContents/1"}, "cachedContent"),
    (Wire.GEMINI, {"tools": [{"googleSearch": {}}]}, "googleSearch"),
    (Wire.GEMINI, {"generationConfig": {"candidateCount": 2}}, "several answers"),
    (Wire.GEMINI, {"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": "x"}}]}]}, "fileData"),
]


@pytest.mark.parametrize(("wire", "more", "what"), UNCARRIED, ids=[f"{row[0]}-{row[2]}" for row in UNCARRIED])
def test_what_has_no_common_form_is_told(wire: Wire, more: dict[str, Any], what: str) -> None:
    [lack] = DIALECTS[wire].read_question({**ASKED[wire], **more}).lacks
    assert what in lack


ONE = [Message(Role.USER, (Text("hi"),))]


@pytest.mark.parametrize(
    ("to", "talk", "what"),
    [
        (Wire.RESPONSES, CommonQuestion("", ONE, stop=("x",)), "at which to stop"),
        (Wire.RESPONSES, CommonQuestion("", ONE, max_tokens=1), "less than 16"),
        (Wire.MESSAGES, CommonQuestion("", ONE, temperature=1.5), "temperature"),
        (Wire.MESSAGES, CommonQuestion("", ONE, form=Form()), "without a schema"),
        (Wire.GEMINI, CommonQuestion("", [Message(Role.USER, (LinkedImage("https://x.example"),))]), "address"),
        (Wire.GEMINI, CommonQuestion("", [Message(Role.MODEL, (ToolCall("a", "b", "[1]"),))]), "no JSON object"),
        (Wire.CHAT, CommonQuestion("", ONE, [Tool("a.b")]), "a.b"),
    ],
)
def test_what_a_dialect_has_no_words_for_is_told(to: Wire, talk: CommonQuestion, what: str) -> None:
    with pytest.raises(CannotCarry, match=re.escape(what)):
        DIALECTS[to].write_question(talk, TARGET)


def test_results_without_ids_belong_to_the_calls_in_their_order() -> None:
    calls: list[Any] = [{"functionCall": {"name": name, "args": {}}} for name in ("a", "b", "a")]
    told = [{"functionResponse": {"name": name, "response": {"output": name}}} for name in ("b", "a", "a")]
    talk = DIALECTS[Wire.GEMINI].read_question(
        {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": told}]}
    )
    ids = [part.id for part in talk.messages[0].parts if isinstance(part, ToolCall)]
    assert len(set(ids)) == 3
    assert [part.call_id for part in talk.messages[1].parts if isinstance(part, ToolResult)] == [ids[1], ids[0], ids[2]]


def test_ids_that_others_refuse_are_changed_in_the_same_way_everywhere() -> None:
    odd = "call_1|fc_" + "x" * 80
    talk = CommonQuestion(
        "", [Message(Role.MODEL, (ToolCall(odd, "a", "{}"),)), Message(Role.USER, (ToolResult(odd, "a", ()),))]
    )
    data: Any = DIALECTS[Wire.MESSAGES].write_question(talk, TARGET)
    call_id = data["messages"][0]["content"][0]["id"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call_id)
    assert data["messages"][1]["content"][0]["tool_use_id"] == call_id


def test_a_call_that_gemini_has_not_made_says_so() -> None:
    talk = CommonQuestion("", [Message(Role.MODEL, (CALL, CALL))])
    data: Any = DIALECTS[Wire.GEMINI].write_question(talk, TARGET)
    first, second = data["contents"][0]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator" and "thoughtSignature" not in second
    older: Any = DIALECTS[Wire.GEMINI].write_question(talk, replace(TARGET, model="gemini-2.5-pro"))
    assert "thoughtSignature" not in older["contents"][0]["parts"][0]


def test_what_the_system_says_later_stays_where_it_was_said() -> None:
    said = [("system", "first"), ("user", "hi"), ("assistant", "ho"), ("system", "later"), ("user", "on")]
    talk = DIALECTS[Wire.CHAT].read_question({"messages": [{"role": role, "content": text} for role, text in said]})
    data: Any = DIALECTS[Wire.MESSAGES].write_question(talk, TARGET)
    assert [block["text"] for block in data["system"]] == ["first"]
    assert [block["text"] for block in data["messages"][-1]["content"]] == ["<system>\nlater\n</system>", "on"]


def test_an_image_that_a_tool_brought_is_shown_behind_its_result() -> None:
    talk = CommonQuestion(
        "", [Message(Role.MODEL, (CALL,)), Message(Role.USER, (ToolResult("call_1", "bash", (Text("x"), PNG)),))]
    )
    chat: Any = DIALECTS[Wire.CHAT].write_question(talk, TARGET)
    assert [message["role"] for message in chat["messages"]] == ["assistant", "tool", "user"]
    gemini: Any = DIALECTS[Wire.GEMINI].write_question(talk, TARGET)
    assert [next(iter(part)) for part in gemini["contents"][-1]["parts"]] == ["functionResponse", "inlineData"]


def test_no_more_is_asked_for_than_a_model_can_answer() -> None:
    talk = CommonQuestion("", ONE, max_tokens=64_000)
    assert DIALECTS[Wire.CHAT].write_question(talk, Target("m", 8000, is_openai=False))["max_tokens"] == 8000
    assert (
        DIALECTS[Wire.MESSAGES].write_question(replace(talk, max_tokens=None), Target("m", 8000))["max_tokens"] == 8000
    )


@each_wire
def test_a_model_that_cannot_be_shown_images_is_not_asked_about_them(wire: Wire) -> None:
    brought = Message(Role.USER, (ToolResult("call_1", "bash", (PNG,)),))
    for message in (Message(Role.USER, (PNG,)), brought):
        with pytest.raises(CannotCarry, match="image"):
            DIALECTS[wire].write_question(
                CommonQuestion("", [Message(Role.MODEL, (CALL,)), message]), replace(TARGET, sees_images=False)
            )


@pytest.mark.parametrize("to", [Wire.MESSAGES, Wire.GEMINI])
def test_halves_of_characters_in_arguments_are_carried(to: Wire) -> None:
    call = ToolCall("call_1", "say", '{"text": "\ud800"}')
    talk = CommonQuestion("m", [Message(Role.USER, (Text("hi"),)), Message(Role.MODEL, (call,))])
    assert r"{'text': '\ud800'}" in repr(DIALECTS[to].write_question(talk, TARGET))


@pytest.mark.parametrize(("told", "meant"), [("12", 12), ("²", "²"), ("9" * 5000, "9" * 5000)])
def test_numbers_that_google_writes_as_text(told: str, meant: object) -> None:
    assert from_openapi({"minItems": told}) == {"minItems": meant}


@each_wire
def test_a_number_that_is_none_is_left_out(wire: Wire) -> None:
    inner = {"temperature": 10**400}
    given = {"generationConfig": inner} if wire is Wire.GEMINI else {"model": "m", **inner}
    assert DIALECTS[wire].read_question(given).temperature is None


def test_tools_that_are_not_shown_yet_are_not_shown_to_others() -> None:
    hidden = {"name": "far", "input_schema": SCHEMA, "defer_loading": True}
    asked = {**ASKED[Wire.MESSAGES], "tools": [{"name": "near", "input_schema": SCHEMA}, hidden]}
    talk = DIALECTS[Wire.MESSAGES].read_question(asked)
    assert ([tool.name for tool in talk.tools], talk.lacks) == (["near"], ())
    found = {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [{"type": "tool_reference", "tool_name": "far"}],
    }
    asked["messages"] = [*asked["messages"][:-1], {"role": "user", "content": [found]}]
    talk = DIALECTS[Wire.MESSAGES].read_question(asked)
    assert ([tool.name for tool in talk.tools], talk.lacks) == (["near", "far"], ())
    assert "far can be used" in str(talk.messages[-1])
