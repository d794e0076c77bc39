"""Large bodies are parsed in steps, and mean what they mean to any parser."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.edge.json_bounds import AT_ONCE
from holdfast.api.edge.json_load import load_json
from holdfast.errors import BadInput

TEXTS = st.text(min_size=1, max_size=9)
LONG = st.builds(lambda text: text * (300_000 // len(text)), TEXTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | LONG,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_a_value_is_what_the_parser_says(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps({"a": value, "b": "c" * AT_ONCE}, ensure_ascii=ascii_only, indent=indent).encode()
    assert asyncio.run(load_json(body)) == json.loads(body)


@pytest.mark.parametrize(
    "broken",
    [
        b'{"a":"%b' % (b"x" * AT_ONCE),
        b'{"a":"%b\\' % (b"x" * AT_ONCE),
        b'{"a":"%b"' % (b"x" * AT_ONCE),
        b'{"a":"%b\n"}' % (b"x" * AT_ONCE),
        b'{"a":"%b\\x"}' % (b"x" * AT_ONCE),
        b'{"a":"%b\\ud800"}' % (b"x" * AT_ONCE),
        b'{"a":"%b\xff"}' % (b"x" * AT_ONCE),
        b'%b"%b"' % (b" " * AT_ONCE, b"\\" * (AT_ONCE + 1)),
        b'{"a" "%b"}' % (b"x" * AT_ONCE),
    ],
)
def test_what_is_no_json_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError):
        asyncio.run(load_json(broken))


@pytest.mark.parametrize("space", [b"", b" ", b"\n  "])
def test_a_name_without_end_is_refused(space: bytes) -> None:
    with pytest.raises(BadInput, match="name"):
        asyncio.run(load_json(b'{"%b"%b:1}' % (b"x" * AT_ONCE, space)))


def test_a_text_that_looks_like_a_mark_stays_as_it_is() -> None:
    texts = ["0" * 33, "a" * AT_ONCE, "f" * 33]
    assert asyncio.run(load_json(json.dumps(texts).encode())) == texts


@pytest.mark.parametrize("text", ["\n", "é", "😀", '"', "a"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_others_have_their_turn_meanwhile(text: str, ascii_only: bool) -> None:
    """Counted in turns, not in time: one parse in one call would give them a single turn."""
    body = json.dumps({"a": text * 1_500_000}, ensure_ascii=ascii_only).encode()

    async def turns_of_others() -> int:
        loading = asyncio.ensure_future(load_json(body))
        turns = 0
        while not loading.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(turns_of_others()) >= len(body) // AT_ONCE
