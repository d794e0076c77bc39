from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.models.answering.redact import Redactor, redacted

pytestmark = pytest.mark.anyio

KEY = "sk-aab-sk-aab-sk-aac"
PIECES = st.lists(
    st.one_of(st.binary(max_size=8), st.sampled_from([KEY.encode()[:n] for n in range(1, len(KEY) + 1)])), max_size=12
)


@given(PIECES)
def test_however_it_is_cut_the_key_is_not_in_it_and_all_else_is(pieces: list[bytes]) -> None:
    redactor = Redactor(KEY)
    passed = b"".join(redactor.feed(piece) for piece in pieces) + redactor.end()
    assert passed == b"".join(pieces).replace(KEY.encode(), b"[key]")


def test_what_is_no_key_is_not_held_back() -> None:
    redactor = Redactor(KEY)
    assert redactor.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert redactor.feed(b"a mask, sk") == b"a mask, "
    assert redactor.feed(b"y") == b"sky"


async def test_a_word_is_no_key() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"none of it"

    assert [one async for one in redacted(chunks(), "none")] == [b"none of it"]
