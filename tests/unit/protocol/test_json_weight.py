"""Which JSON is too much work, whatever its length."""

import json

import pytest

from holdfast.protocol.json_weight import MOST_ESCAPES, MOST_VALUES, is_light


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"1,", b"[", b'"",', b'"a":{},'])
def test_many_small_values_are_heavy(piece: bytes) -> None:
    assert not is_light(b'{"x":[' + piece * (MOST_VALUES + 1))


def test_texts_are_light_whatever_they_say() -> None:
    assert is_light(json.dumps({"text": ',[{"' * MOST_VALUES}).encode())
    assert is_light(json.dumps(["é" * 1_000_000, "a" * 8_000_000], ensure_ascii=False).encode())
    assert not is_light(b'"' + b"\\n" * (MOST_ESCAPES + 1) + b'"')


def test_what_is_short_is_light() -> None:
    assert is_light(b"[" * 60_000) and is_light(b"")
