"""Answers in each dialect: what is written is read again, as a stream and whole, with reason and usage."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import (
    CallBegun,
    CallEnded,
    CallPart,
    CannotTell,
    Delta,
    FinishReason,
    Head,
    TextDelta,
    ThoughtDelta,
    gathered,
)
from holdfast.broker.dialects.call_queue import CallQueue
from holdfast.broker.dialects.foreign import FOREIGN, has_foreign, without_foreign
from holdfast.broker.dialects.json import dumped, written
from holdfast.broker.dialects.question import Text, Thought, ToolCall
from holdfast.broker.dialects.reading import TokenUsage
from holdfast.broker.dialects.sse import EventSplitter, data_of
from holdfast.broker.models.answering.translation import Interpreter, Translation
from holdfast.vocabulary.models import Wire

HEAD = Head("0123456789abcdef", "m", 1)
USAGE = TokenUsage(input=30, cached=10, output=7)
each_wire = pytest.mark.parametrize("wire", list(Wire))
Told = list[Text | Thought | ToolCall]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
objects = st.dictionaries(texts, st.one_of(texts, st.integers(-9, 9), st.none()), max_size=2)


@st.composite
def answers(draw: st.DrawFn, wire: Wire) -> Told:
    calls: Told = [
        ToolCall(f"call_{number}", "bash", dumped(draw(objects))) for number in range(draw(st.integers(0, 3)))
    ]
    said: Told = [Thought(draw(texts))] if draw(st.booleans()) else []
    said += [Text(draw(texts))] if draw(st.booleans()) or not (said or calls) else []
    mixed = [*said, *calls]
    return mixed if wire is Wire.CHAT else list(draw(st.permutations(mixed)))


def deltas_of(parts: Told) -> Iterable[Delta]:
    for part in parts:
        match part:
            case Text(text):
                yield from (TextDelta(one) for one in (text[:3], text[3:]) if one)
            case Thought(text):
                yield from (ThoughtDelta(one) for one in (text[:3], text[3:]) if one)
            case ToolCall(call_id, name, arguments):
                yield CallBegun(call_id, name)
                yield from (CallPart(one) for one in (arguments[:4], arguments[4:]) if one)
                yield CallEnded()


def reason_of(parts: Told) -> FinishReason:
    return FinishReason.CALLS if any(isinstance(part, ToolCall) for part in parts) else FinishReason.STOP


def streamed(wire: Wire, parts: Told, reason: FinishReason) -> bytes:
    writer = DIALECTS[wire].writer(HEAD)
    told = b"".join(writer.write(delta) for delta in deltas_of(parts))
    return writer.begin() + told + writer.end(reason, USAGE)


@each_wire
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_again(wire: Wire, data: st.DataObject) -> None:
    parts = data.draw(answers(wire))
    reader = DIALECTS[wire].reader("x")
    found: list[Delta] = []
    for event in EventSplitter().feed(streamed(wire, parts, reason_of(parts))):
        found += reader.read_event(event) or ()
    assert gathered([*found, *reader.end()]) == parts
    assert (reader.reason, reader.reading.usage) == (reason_of(parts), USAGE)
    assert reader.reading.complete and reader.reading.failed is None

    whole = DIALECTS[wire].writer(HEAD).whole(parts, reason_of(parts), USAGE)
    reader = DIALECTS[wire].reader("x")
    assert gathered(reader.read_whole(whole)) == parts
    assert (reader.reason, reader.reading.usage) == (reason_of(parts), USAGE)


@each_wire
@pytest.mark.parametrize("to", list(Wire))
@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.FILTERED])
def test_why_an_answer_ended_is_told(wire: Wire, to: Wire, reason: FinishReason) -> None:
    interpreter = Interpreter(Translation(to, "m", True), DIALECTS[wire].reader("x"))
    events = EventSplitter().feed(streamed(wire, [Text("so far")], reason))
    said = [one for event in events for one in interpreter.take(event)]
    reader = DIALECTS[to].reader("x")
    found = [delta for event in EventSplitter().feed(b"".join(said)) for delta in reader.read(_data(event))]
    assert (gathered(found), reader.reason) == ([Text("so far")], reason)


def _data(event: bytes) -> Any:
    data = data_of(event)
    return from_json(data) if data.startswith(b"{") else {}


@each_wire
def test_each_piece_is_told_as_it_comes(wire: Wire) -> None:
    """Of a call in Gemini's dialect, which has no pieces of them, at its end."""
    writer = DIALECTS[wire].writer(HEAD)
    writer.begin()
    assert b"hello" in writer.write(TextDelta("hello"))
    assert b"hm" in writer.write(ThoughtDelta("hm"))
    begun = writer.write(CallBegun("call_1", "bash"))
    assert (b"bash" in begun) is (wire is not Wire.GEMINI)


@each_wire
def test_an_error_within_a_stream_is_told_in_the_other_dialect(wire: Wire) -> None:
    for to in Wire:
        interpreter = Interpreter(Translation(to, "m", True), DIALECTS[wire].reader("x"))
        first = EventSplitter().feed(DIALECTS[wire].error_event("it burns"))[0]
        said = b"".join(interpreter.take(first))
        again = DIALECTS[to].reader("x")
        for event in EventSplitter().feed(said):
            again.read_event(event)
        assert again.reading.failed == "it burns"
        assert interpreter.ended and interpreter.take(first) == []


def test_calls_that_come_at_the_same_time_are_told_one_after_the_other() -> None:
    queue = CallQueue()
    found = [*queue.begin(0, "a", "one"), *queue.begin(1, "b", "two"), *queue.part(1, '{"x":'), *queue.part(0, "{}")]
    found += [*queue.say(TextDelta("between")), *queue.part(1, "1}"), *queue.end(1)]
    assert found == [CallBegun("a", "one"), CallPart("{}")]
    rest = queue.end_all()
    assert rest[0] == CallEnded() and rest[-1] == TextDelta("between")
    assert gathered([*found, *rest]) == [ToolCall("a", "one", "{}"), ToolCall("b", "two", '{"x":1}'), Text("between")]


def test_a_call_without_arguments_has_empty_ones() -> None:
    reader = DIALECTS[Wire.MESSAGES].reader("x")
    start = {"type": "tool_use", "id": "a", "name": "now", "input": {}}
    found = list(reader.read({"type": "content_block_start", "index": 0, "content_block": start}))
    found += reader.read({"type": "content_block_stop", "index": 0})
    assert gathered(found) == [ToolCall("a", "now", "{}")]


def test_chat_completions_that_count_every_call_as_the_first() -> None:
    reader = DIALECTS[Wire.CHAT].reader("x")
    calls = [{"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    found = [one for call in calls for one in reader.read({"choices": [{"delta": {"tool_calls": [call]}}]})]
    found += reader.read({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert gathered(found) == [ToolCall("a", "a", "{}"), ToolCall("b", "b", "{}")]
    assert reader.reason is FinishReason.CALLS


def test_responses_that_tell_items_only_at_their_end() -> None:
    reader = DIALECTS[Wire.RESPONSES].reader("x")
    message = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    call = {"type": "function_call", "call_id": "a", "name": "bash", "arguments": '{"x":1}'}
    found = [
        delta
        for at, item in enumerate((message, call))
        for delta in reader.read({"type": "response.output_item.done", "output_index": at, "item": item})
    ]
    assert gathered(found) == [Text("hello"), ToolCall("a", "bash", '{"x":1}')]


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER", "SOMETHING_NEW"])
def test_a_model_that_has_lost_its_way_is_no_answer(reason: str) -> None:
    with pytest.raises(CannotTell, match=reason):
        list(DIALECTS[Wire.GEMINI].reader("x").read({"candidates": [{"finishReason": reason}]}))


def test_calls_of_gemini_without_ids_get_some_that_no_other_answer_has() -> None:
    event = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": {}}}]}}]}
    ids = {
        delta.id
        for name in "xy"
        for delta in DIALECTS[Wire.GEMINI].reader(name).read(event)
        if isinstance(delta, CallBegun)
    }
    assert len(ids) == 2


@pytest.mark.parametrize("wire", [Wire.MESSAGES, Wire.RESPONSES])
def test_thoughts_of_others_are_not_sent_to_a_provider_who_has_not_signed_them(wire: Wire) -> None:
    whole: Any = DIALECTS[wire].writer(HEAD).whole([Thought("hm"), Text("hello")], FinishReason.STOP, USAGE)
    if wire is Wire.MESSAGES:
        asked = {"messages": [{"role": "assistant", "content": whole["content"]}], "max_tokens": 1}
        clean = {"messages": [{"role": "assistant", "content": whole["content"][1:]}], "max_tokens": 1}
    else:
        asked = {"input": whole["output"], "model": "m"}
        clean = {"input": whole["output"][1:], "model": "m"}
    assert has_foreign(written(asked)) and FOREIGN in dumped(whole)
    assert without_foreign(wire, asked) == clean


def test_an_answer_that_is_passed_on_as_it_is_keeps_nothing_of_it() -> None:
    reader = DIALECTS[Wire.CHAT].reader("x")
    for index in range(3):
        call = {"index": index, "id": f"call_{index}", "function": {"name": "bash", "arguments": "{}"}}
        reader.read({"choices": [{"delta": {"tool_calls": [call]}}]})
    assert reader.reading.begun and reader.end() == []
