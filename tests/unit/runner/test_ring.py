"""The ring keeps the newest bytes, knows which stream they came from, and never more than it may."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.messages import MOST_SEGMENTS, unpack_segments
from holdfast.runner.ring import Ring


def segments(ring: Ring) -> list[tuple[int, int]]:
    return unpack_segments(ring.packed_segments())


WRITES = st.lists(st.tuples(st.sampled_from([0, 1]), st.binary(max_size=30)), max_size=40)


@given(st.integers(1, 100), WRITES)
def test_it_holds_the_end_of_what_was_appended(limit: int, writes: list[tuple[int, bytes]]) -> None:
    ring = Ring(limit)
    everything = b""
    for stream, data in writes:
        ring.append(stream, data)
        everything += data
        assert ring.content() == everything[-limit:]
        assert ring.held == len(ring.content()) <= limit
        assert ring.written == len(everything)
        assert ring.truncated == (len(everything) > limit)


@given(st.integers(1, 100), WRITES)
def test_every_byte_knows_its_stream(limit: int, writes: list[tuple[int, bytes]]) -> None:
    ring = Ring(limit)
    for stream, data in writes:
        ring.append(stream, data)
    owners = [stream for stream, data in writes for _ in data][-limit:]
    assert [stream for stream, length in segments(ring) for _ in range(length)] == owners
    assert sum(length for _, length in segments(ring)) == ring.held


def test_many_small_writes_to_one_stream_are_few_pieces() -> None:
    ring = Ring(1 << 20)
    for _ in range(50_000):
        ring.append(0, b"x")
    assert len(segments(ring)) < 10


def test_one_write_far_over_the_limit() -> None:
    ring = Ring(10)
    ring.append(0, b"early")
    ring.append(1, bytes(1 << 20) + b"0123456789")
    assert (ring.content(), segments(ring)) == (b"0123456789", [(1, 10)])
    assert ring.truncated and ring.written == 5 + (1 << 20) + 10


def test_streams_that_alternate_byte_by_byte_cost_little() -> None:
    """The runner shares the sandbox's memory limit: what it keeps must be near what it may keep."""
    limit = 100_000
    ring = Ring(limit)
    tracemalloc.start()
    try:
        for _ in range(limit):
            ring.append(0, b"\n")
            ring.append(1, b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * limit, f"{peak} bytes of memory for {limit} bytes of output"


def test_the_number_of_runs_is_bounded() -> None:
    ring = Ring(1 << 30)
    for _ in range(MOST_SEGMENTS):
        ring.append(0, b"o")
        ring.append(1, b"e")
    assert len(segments(ring)) == MOST_SEGMENTS == ring.held
    assert ring.truncated


@given(st.integers(1, 100), WRITES, st.integers(0, 40), st.integers(0, 200), st.integers(1, 20))
def test_a_reader_gets_every_byte_that_was_not_dropped_before_its_turn(
    limit: int, writes: list[tuple[int, bytes]], joins_at: int, position: int, piece: int
) -> None:
    ring = Ring(limit)
    owners: list[tuple[int, int]] = []  # of each byte ever: its stream and its value
    cursor = None
    for number, (stream, data) in enumerate(writes):
        if number == joins_at:
            cursor = ring.cursor(position)
            assert cursor.position == min(position, ring.written)
        ring.append(stream, data)
        owners += [(stream, byte) for byte in data]
        if cursor is not None and number % 3 == 0:
            expected = max(cursor.position, ring.start)
            got_stream, got = ring.read(cursor, piece)
            assert [(got_stream, byte) for byte in got] == owners[expected : expected + len(got)]
            assert bool(got) == (expected < ring.written)
            assert cursor.position == expected + len(got)
    cursor = cursor or ring.cursor(position)
    seen = max(cursor.position, ring.start)
    while (part := ring.read(cursor, piece))[1]:
        assert [(part[0], byte) for byte in part[1]] == owners[seen : seen + len(part[1])]
        seen += len(part[1])
    assert seen == ring.written
