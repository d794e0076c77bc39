from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.models.answering.redact import Blotter, blotted

pytestmark = pytest.mark.anyio

KEY = "sk-aab-sk-aab-sk-aac"
PIECES = st.lists(
    st.one_of(st.binary(max_size=8), st.sampled_from([KEY.encode()[:n] for n in range(1, len(KEY) + 1)])), max_size=12
)


@given(PIECES)
def test_however_it_is_cut_the_key_is_not_in_it_and_all_else_is(pieces: list[bytes]) -> None:
    blotter = Blotter(KEY)
    passed = b"".join(blotter.feed(piece) for piece in pieces) + blotter.end()
    assert passed == b"".join(pieces).replace(KEY.encode(), b"[key]")


def test_what_is_no_key_is_not_held_back() -> None:
    blotter = Blotter(KEY)
    assert blotter.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert blotter.feed(b"a mask, sk") == b"a mask, "
    assert blotter.feed(b"y") == b"sky"


async def test_a_word_is_no_key() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"none of it"

    assert [one async for one in blotted(chunks(), "none")] == [b"none of it"]
