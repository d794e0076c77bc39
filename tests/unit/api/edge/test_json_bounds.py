"""What is too much work is refused before it is parsed, and nothing else is; long texts are read as they arrive."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.edge.json_bounds import MOST_DEPTH, MOST_NAMES, MOST_VALUES, check_json, steps
from holdfast.api.wire.json_text import JsonString
from holdfast.api.wire.pieces import list_reply, object_pieces
from holdfast.errors import BadInput

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=40,
)


@given(JSON)
def test_what_is_small_passes(value: object) -> None:
    for _step in steps(json.dumps(value).encode()):
        pass


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" + b"1," * MOST_VALUES + b"1]", "values"),
        (b"[" + b"[]," * MOST_VALUES, "values"),
        (b"{" + b'"a":1,' * (MOST_NAMES + 1), "named values"),
        (b"[" * (MOST_DEPTH + 1), "levels"),
        (b'{"a":' * 100_000, "levels"),
    ],
)
def test_what_is_too_much(body: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        asyncio.run(check_json(body))


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"cmd": 'a,b,{[:"\\' * 200_000}).encode(),
        json.dumps({"argv": ["a,b"] * 4096}).encode(),
        json.dumps({"env": {f"K{number}": "{[," * 10 for number in range(MOST_NAMES - 1)}}).encode(),
        b'"' + b"\\" * 600_001,
        b'{"a":"b',
        b"]" * 100_000,
        b" " * 600_000,
    ],
)
def test_texts_do_not_count_and_what_is_no_json_is_left_to_the_parser(body: bytes) -> None:
    asyncio.run(check_json(body))


@pytest.mark.parametrize("filling", [b"\\n", b"a", b" ", b'\\"', b"1"])
def test_each_step_is_short(filling: bytes) -> None:
    body = b'{"cmd":"' + filling * (4_000_000 // len(filling)) + b'"}'
    longest, since = 0.0, time.thread_time()
    for _step in steps(body):
        longest = max(longest, time.thread_time() - since)
        since = time.thread_time()
    assert longest < 0.03


@given(st.text(), st.integers(1, 9), st.booleans())
def test_a_text_in_any_chunks(text: str, size: int, ascii_only: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")[1:] + b', "rest"'
    reader = JsonString()
    read = b""
    for at in range(0, len(raw), size):
        if reader.rest is not None:
            reader.rest += raw[at : at + size]
        else:
            read += reader.feed(raw[at : at + size])
    assert (read.decode(), reader.rest) == (text, b', "rest"')


@pytest.mark.parametrize("raw", [b"\n", b"\\x", b"\\u12g4", b"\xff\xff", b'\\ud800"', b'\\ud800a"', b'\\udc00"'])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_text_that_is_none(raw: bytes, size: int) -> None:
    reader = JsonString()
    with pytest.raises(ValueError):
        for at in range(0, len(raw), size):
            reader.feed(raw[at : at + size])


@given(st.binary(max_size=50).map(lambda data: data * 30_000), st.binary(max_size=9))
def test_long_texts_in_pieces_are_what_they_are_in_one(one: bytes, other: bytes) -> None:
    pieces = asyncio.run(object_pieces({"code": 1}, {"one": one, "other": other}))
    told = {"code": 1, "one": one.decode(errors="replace"), "other": other.decode(errors="replace")}
    assert json.loads(b"".join(pieces)) == told


@pytest.mark.parametrize("count", [0, 1, 20, 41])
@pytest.mark.parametrize("rest", [None, {"next": None}])
def test_lists_in_pieces(count: int, rest: dict[str, object] | None) -> None:
    from holdfast.api.sessions.models import FileContent

    models = [FileContent(content_base64=str(number), truncated=False) for number in range(count)]
    reply = asyncio.run(list_reply("files", models, rest))
    body = json.loads(b"".join(reply._pieces))  # type: ignore[attr-defined]
    assert body == {"files": [model.model_dump() for model in models], **(rest or {})}
    assert reply.headers["content-length"] == str(len(b"".join(reply._pieces)))  # type: ignore[attr-defined]
