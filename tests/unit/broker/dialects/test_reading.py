"""What is read out of answers, in each dialect: usage, the beginning, the end, errors."""

import json

import pytest

from holdfast.broker.accounts import Tokens
from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading
from holdfast.vocabulary.models import Wire


def read(wire: Wire, *events: object) -> Reading:
    return reader_of(wire, *events).reading


def reader_of(wire: Wire, *events: object) -> AnswerReader:
    reader = DIALECTS[wire].reader("x")
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        reader.read_event(f"data: {data}\n\n".encode())
    return reader


def whole(wire: Wire, data: dict[str, object]) -> Tokens:
    reader = DIALECTS[wire].reader("x")
    reader.read_whole(data)
    assert reader.reading.complete
    return reader.reading.tokens(1000)


def delta(text: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"delta": {"role": "assistant", "content": text}, **more}], "usage": None}


def test_chat() -> None:
    reading = read(Wire.CHAT, delta(""))
    assert not reading.begun
    reading = read(Wire.CHAT, delta("hello"), delta(None, finish_reason="stop"))
    assert reading.begun and reading.finished and not reading.complete
    details = {"cached_tokens": 7}
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": details}
    bill = {"choices": [], "usage": usage}
    reading = read(Wire.CHAT, delta("hello"), delta(None, finish_reason="stop"), bill, "[DONE]")
    assert reading.complete and reading.tokens(0) == Tokens(10, 3, 7)
    assert reader_of(Wire.CHAT, bill).is_only_usage
    assert not reader_of(Wire.CHAT, delta("hello")).is_only_usage
    assert not reader_of(Wire.CHAT, bill, "[DONE]").is_only_usage
    assert whole(Wire.CHAT, {"choices": [{"message": {"content": "x"}}], "usage": usage}) == Tokens(10, 3, 7)


def test_chat_as_others_speak_it() -> None:
    deepseek = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}}
    assert read(Wire.CHAT, deepseek).tokens(0) == Tokens(9, 1, 4)
    router = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.0125}}
    assert read(Wire.CHAT, router).cost_usd == 0.0125
    tool = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]}
    assert read(Wire.CHAT, tool).begun
    assert read(Wire.CHAT, {"choices": [{"delta": {"reasoning_content": "hm"}}]}).begun
    assert read(Wire.CHAT, {"error": {"message": "overloaded"}}).failed == "overloaded"


def test_responses() -> None:
    assert not read(Wire.RESPONSES, {"type": "response.created"}, {"type": "response.in_progress"}).begun
    usage = {"input_tokens": 10, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}}
    end = {"type": "response.completed", "response": {"usage": usage}}
    reading = read(Wire.RESPONSES, {"type": "response.output_text.delta", "delta": "hello"}, end)
    assert reading.begun and reading.complete and reading.tokens(0) == Tokens(10, 4, 2)
    failed = {"type": "response.failed", "response": {"error": {"message": "no"}}}
    assert read(Wire.RESPONSES, failed).failed == "no"
    assert whole(Wire.RESPONSES, {"usage": usage}) == Tokens(10, 4, 2)


def test_messages() -> None:
    begin = {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 1}
    start = {"type": "message_start", "message": {"usage": begin}}
    assert not read(Wire.MESSAGES, start, {"type": "ping"}).begun
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello hello hello"}}
    broken = read(Wire.MESSAGES, start, text)
    assert broken.begun and not broken.finished
    assert broken.tokens(0) == Tokens(28, 4, 20), "what was said before it broke is counted by its length"
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    reading = read(Wire.MESSAGES, start, text, end, {"type": "message_stop"})
    assert reading.complete and reading.tokens(0) == Tokens(28, 9, 20) and reading.cache_written == 3
    again = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 9}}
    assert read(Wire.MESSAGES, start, again).tokens(0).input == 28
    assert read(Wire.MESSAGES, {"type": "error", "error": {"message": "overloaded"}}).failed == "overloaded"


def test_gemini() -> None:
    usage = {"promptTokenCount": 8, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "cachedContentTokenCount": 1}
    part = {"candidates": [{"content": {"parts": [{"text": "hello"}]}}], "usageMetadata": {"promptTokenCount": 8}}
    end = {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": usage}
    assert read(Wire.GEMINI, part).begun and not read(Wire.GEMINI, part).finished
    reading = read(Wire.GEMINI, part, end)
    assert reading.complete and reading.tokens(0) == Tokens(8, 7, 1)
    assert read(Wire.GEMINI, {"promptFeedback": {"blockReason": "SAFETY"}}).finished
    assert read(Wire.GEMINI, {"error": {"message": "no"}}).failed == "no"


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("junk", ["", "{", "[]", "3", '{"usage": 3, "type": 4}', '{"choices": {}, "candidates": 3}'])
def test_junk_is_passed_over(wire: Wire, junk: str) -> None:
    assert read(wire, junk).tokens(100) == Tokens()


def test_an_answer_that_nobody_has_counted_is_guessed() -> None:
    assert Reading().tokens(4000) == Tokens(), "nothing was answered"
    assert Reading(begun=True, characters=40).tokens(4000) == Tokens(1000, 10, 0)
    complete = Reading(begun=True, finished=True, complete=True, characters=40)
    assert complete.tokens(4000) == Tokens(1000, 10, 0), "a provider that never says"
    assert Reading(begun=True, input=3, output=0, characters=40, complete=True).tokens(4000) == Tokens(3, 0, 0)


def test_all_choices_are_counted() -> None:
    choices = [{"index": at, "delta": {"content": "word"}} for at in range(3)]
    assert read(Wire.CHAT, {"choices": choices}, "[DONE]").tokens(0).output == 3


@pytest.mark.parametrize("wire", list(Wire))
def test_an_error_that_ends_a_stream_is_read_as_one(wire: Wire) -> None:
    reader = DIALECTS[wire].reader("x")
    for event in DIALECTS[wire].error_event("it broke").split(b"\n\n"):
        reader.read_event(event + b"\n\n")
    assert reader.reading.failed is not None and "it broke" in reader.reading.failed
