"""The two streams of an output in one body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.messages import pack_segments, unpack_segments

SEGMENTS = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 2**31 - 1)))


@given(SEGMENTS)
def test_round_trip(segments: list[tuple[int, int]]) -> None:
    packed = pack_segments(segments)
    assert len(packed) == 4 * len(segments)
    assert unpack_segments(packed) == segments


@given(st.binary().filter(lambda data: len(data) % 4))
def test_what_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cut off"):
        unpack_segments(data)
