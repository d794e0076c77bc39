"""How much work a body is, before it is done."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.models.intake import weight
from holdfast.broker.models.intake.weight import MOST_PARTS, TooHeavy, parts_of
from holdfast.protocol.json_weight import between_texts, signs

JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\,[{'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='"\\,'), inner),
    max_leaves=30,
)


@given(JSON)
def test_texts_do_not_count(value: object) -> None:
    body = json.dumps(value).encode()
    found = sum(signs(body, *piece) for piece in between_texts(body))
    assert found == _signs_of(value)


def _signs_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return 0
    return 1 + max(len(inner) - 1, 0) + sum(_signs_of(one) for one in inner)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"1,", b"[", b'"",', b'"a":{},'])
def test_many_small_values_are_too_many(piece: bytes) -> None:
    with pytest.raises(TooHeavy, match="more than 60000 values"):
        parts_of(b'{"x":[' + piece * MOST_PARTS * 2)


def test_a_long_text_is_no_work_whatever_it_says() -> None:
    text = ',[{"\\' * MOST_PARTS
    assert parts_of(json.dumps({"model": "m", "text": [text, text]}).encode()) == 4


def test_a_text_of_quotes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "MOST_STEPS", 1000)
    with pytest.raises(TooHeavy):
        parts_of(json.dumps('",' * MOST_PARTS * 2).encode())


@pytest.mark.parametrize("body", [b"", b'"', b'"\\', b'\\"', b'{"a', b'"' * 11])
def test_what_is_no_json_is_left_to_the_parser(body: bytes) -> None:
    assert parts_of(body + b" " * 10) <= 1
