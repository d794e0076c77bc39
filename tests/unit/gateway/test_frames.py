"""Whether a person is there, as seen from the frames that a browser sends."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.proxy.frames import FrameReader


def frame(payload: bytes, opcode: int = 1, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    length = len(payload)
    head = bytes([0x80 | opcode])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", length)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", length)
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


@pytest.mark.parametrize("payload", [b"a", b"0l", b'{"type":"custom"}', b"x" * 200, b"x" * 70_000, b'42["typed"]'])
def test_a_person_types(payload: bytes) -> None:
    assert FrameReader().feed(frame(payload))
    assert FrameReader().feed(frame(payload, opcode=2))


@pytest.mark.parametrize("payload", [b"2", b"3", b"ping", b'{"type":"ping"}', b""])
def test_programs_keep_themselves_alive(payload: bytes) -> None:
    assert not FrameReader().feed(frame(payload))


@pytest.mark.parametrize("opcode", [8, 9, 10])
def test_pings_and_the_end_are_no_persons(opcode: int) -> None:
    assert not FrameReader().feed(frame(b"anything", opcode=opcode))


def test_a_bare_header_of_code_server_is_a_sign_of_life() -> None:
    assert not FrameReader().feed(frame(bytes(13), opcode=2))
    assert FrameReader().feed(frame(bytes(14), opcode=2))


payloads = st.lists(st.tuples(st.sampled_from([1, 2, 9]), st.binary(max_size=300)), min_size=1, max_size=8)


@given(payloads, st.integers(min_value=1, max_value=40))
def test_the_pieces_do_not_matter(frames: list[tuple[int, bytes]], step: int) -> None:
    each = [FrameReader().feed(frame(payload, opcode)) for opcode, payload in frames]
    data = b"".join(frame(payload, opcode) for opcode, payload in frames)
    reader = FrameReader()
    found = [reader.feed(data[at : at + step]) for at in range(0, len(data), step)]
    assert any(found) == any(each)


@given(st.binary(max_size=400))
def test_rubbish_is_read_without_an_error(data: bytes) -> None:
    FrameReader().feed(data)
