"""Frames: whatever the network does to the bytes, the same frames come out; what is no frame is refused early."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProtocolError
from holdfast.protocol import frames

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
HEADERS = st.dictionaries(st.text(max_size=10), JSON, max_size=5)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=200)), max_size=5)


@given(FRAMES, st.data())
def test_any_split_of_the_stream_gives_the_same_frames(sent: list[frames.Frame], data: st.DataObject) -> None:
    stream = b"".join(frames.encode(header, body) for header, body in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder = frames.Decoder()
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert got == sent
    assert decoder.waiting == 0 and decoder.rest() == b""


@given(FRAMES)
def test_byte_by_byte(sent: list[frames.Frame]) -> None:
    decoder = frames.Decoder()
    stream = b"".join(frames.encode(header, body) for header, body in sent)
    assert [frame for byte in stream for frame in decoder.feed(bytes([byte]))] == sent


@given(HEADERS, st.binary(max_size=50), st.binary(max_size=100))
def test_what_follows_a_frame_stays_untouched(header: frames.Header, body: bytes, rest: bytes) -> None:
    """How a connection turns into a raw stream."""
    decoder = frames.Decoder()
    decoder.add(frames.encode(header, body) + rest)
    assert decoder.next() == (header, body)
    assert decoder.waiting == len(rest)
    assert decoder.rest() == rest
    assert decoder.waiting == 0


@pytest.mark.parametrize(
    "lengths",
    [(frames.MAX_HEADER + 1, 0), (0, frames.MAX_BODY + 1), (2**32 - 1, 2**32 - 1), (2, frames.MAX_BODY + 1)],
)
def test_a_frame_over_the_limit_is_refused_before_it_is_read(lengths: tuple[int, int]) -> None:
    decoder = frames.Decoder()
    with pytest.raises(ProtocolError, match="limit"):
        decoder.feed(struct.pack(">II", *lengths))


def test_a_frame_at_the_limit_passes() -> None:
    body = bytes(frames.MAX_BODY)
    decoder = frames.Decoder()
    [(header, got)] = decoder.feed(frames.encode({"op": "x"}, body))
    assert header == {"op": "x"} and got == body


@pytest.mark.parametrize(
    ("header", "body"), [({"x": "y" * (frames.MAX_HEADER + 1)}, b""), ({}, bytes(frames.MAX_BODY + 1))]
)
def test_a_frame_over_the_limit_is_not_sent(header: frames.Header, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.encode(header, body)


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"[]", b"1", b'"text"', b"null", b"{}{}", b"{} x", b"\xff\xfe", b'{"a":\x00}', b"{'a':1}", b"[" * 5000],
)
def test_a_header_that_is_no_object(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.Decoder().feed(struct.pack(">II", len(header), 0) + header)


@given(st.binary(max_size=300))
def test_garbage_gives_frames_or_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    try:
        for header, body in frames.Decoder().feed(garbage):
            assert isinstance(header, dict) and isinstance(body, bytes)
    except ProtocolError:
        pass


def test_the_format_is_what_it_is() -> None:
    """Runners of an earlier version must still understand us."""
    assert frames.encode({"op": "ping", "id": 1}, b"body") == b'\0\0\0\x14\0\0\0\x04{"op":"ping","id":1}body'
