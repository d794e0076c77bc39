"""What is lifted out of a body, and that nothing of it is lost."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from holdfast.broker.dialects.json import object_in, written
from holdfast.broker.dialects.question import Image, image_from_url
from holdfast.broker.models.intake import lifted
from holdfast.broker.models.intake.lifted import LONG_BYTES, NotPlain, lift

IMAGE = "iVBORw0KGgo" + "Ab3/" * 50_000


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few letters are a long stretch."""
    monkeypatch.setattr(lifted, "LONG_BYTES", 10)
    monkeypatch.setattr(lifted, "_LEFT_BYTES", 5)


def whole(text: bytes, out: lifted.Lifted) -> bytes:
    return b"".join(out.pieces(text))


TEXTS = st.text(alphabet='abcdefgh"\\\n,[{\u00e9\U0001f600', max_size=60)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


@pytest.mark.usefixtures("short")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON, st.booleans())
def test_every_body_is_as_it_was_when_all_is_set_in_again(value: object, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    text, out = lift(bytearray(body))
    assert whole(text, out) == body
    assert out.size(text) == len(body)
    assert json.loads(whole(written(json.loads(text)), out)) == value


@pytest.mark.usefixtures("short")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet='ab"\\\\,[{}]: 1', max_size=80))
def test_what_is_no_json_does_not_become_one(body: str) -> None:
    assert _is_json(lift(body.encode())[0]) == _is_json(body.encode())


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def test_an_image_is_not_parsed_and_moves_to_another_dialect() -> None:
    body = to_json({"model": "m", "url": f"data:image/png;base64,{IMAGE}"})
    text, out = lift(body)
    assert len(text) < 2000
    image = image_from_url(from_json(text)["url"])
    assert isinstance(image, Image) and image.media_type == "image/png"
    told = to_json({"source": {"media_type": image.media_type, "data": image.data}})
    assert json.loads(whole(told, out)) == {"source": {"media_type": "image/png", "data": IMAGE}}


def test_a_stretch_in_a_text_that_is_json_itself() -> None:
    line = "\u00e9" * LONG_BYTES
    arguments = json.dumps({"content": f"first\n{line}\nlast"}, ensure_ascii=False)
    text, out = lift(to_json({"arguments": arguments}))
    assert len(text) < 2000
    inner = object_in(from_json(text)["arguments"])
    assert json.loads(whole(to_json({"input": inner}), out)) == {"input": {"content": f"first\n{line}\nlast"}}
    again = written({"arguments": written(inner).decode()})
    assert json.loads(json.loads(whole(again, out))["arguments"]) == json.loads(arguments)


@pytest.mark.parametrize("bad", [b"\n", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_bytes_that_no_text_may_have_are_found(bad: bytes) -> None:
    long = b"a" * LONG_BYTES * 5
    for body in (b'{"a":"' + long + bad + long + b'"}', b'{"a":"' + long + bad + b'\\n"}'):
        with pytest.raises(NotPlain):
            lift(body)


def test_numbers_and_blanks_stay() -> None:
    for body in (b"9" * LONG_BYTES * 2, b'{"a":' + b" " * LONG_BYTES * 2 + b"1}", b"[" * LONG_BYTES * 2):
        text, out = lift(body)
        assert text == body and out.is_empty


def test_what_a_mark_looks_like_helps_nobody() -> None:
    """The marks of one body are of no use in another."""
    text, _out = lift(to_json({"a": IMAGE}))
    mark = from_json(text)["a"][-38:]
    body = to_json({"a": IMAGE, "b": mark})
    text, out = lift(body)
    assert whole(text, out) == body


def test_a_short_form_says_how_long_it_was() -> None:
    text, out = lift(to_json({"a": IMAGE}))
    short = json.loads(out.shortened(text))["a"]
    assert short == IMAGE[:1024] + f"[+{len(IMAGE) - 1024} bytes]"


@pytest.mark.parametrize("piece", [b"a\\n", b'\\"', b"\\\\", b"a" * 3000 + b"\\n", b'",["'])
def test_many_escapes_take_time_in_proportion(piece: bytes) -> None:
    """Each step goes on from where the one before has ended: 16 MB of them would take hours otherwise."""
    body = b'{"a":"' + piece * ((16 << 20) // len(piece)) + b'"}'
    text, out = lift(body)
    assert text == body and out.is_empty
