"""Events are cut out of a stream wherever its pieces were cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.dialects import sse
from holdfast.broker.dialects.sse import EventSplitter, data_of

STREAM = b'event: a\ndata: {"x": 1}\n\n: comment\n\ndata: one\ndata: two\r\n\r\ndata:last\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    splitter = EventSplitter()
    events = [event for a, b in itertools.pairwise(places) for event in splitter.feed(STREAM[a:b])]
    assert b"".join(events) == STREAM
    assert [data_of(event) for event in events] == [b'{"x": 1}', b"", b"one\ntwo", b"last"]
    assert splitter.end() == b""


def test_the_last_event_without_its_empty_line() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n\ndata: 2") == [b"data: 1\n\n"]
    assert splitter.end() == b"data: 2"


def test_a_very_long_event_passes_in_parts() -> None:
    splitter = EventSplitter()
    piece = b"data: " + b"x" * sse.MOST_BYTES
    first = splitter.feed(piece)
    assert sum(map(len, first)) == len(piece) - 3 and splitter.torn
    assert b"".join(first + splitter.feed(b"\n\ndata: 2\n\n")) == piece + b"\n\ndata: 2\n\n"
    assert not splitter.torn


def test_a_long_event_in_small_pieces_takes_time_in_proportion() -> None:
    splitter = EventSplitter(8 << 20)
    event = b"data: " + b"x" * (7 << 20) + b"\n\n"
    assert [one for at in range(0, len(event), 1000) for one in splitter.feed(event[at : at + 1000])] == [event]
