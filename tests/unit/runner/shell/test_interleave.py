"""Two streams put back in order: no byte is lost, made up or moved within its stream."""

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.runner.shell.interleave import Held, pieces

TEXT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"line\n"]), max_size=12).map(b"".join)
RUNS = st.lists(st.sampled_from([0, 1]), max_size=12)


def merge(data: tuple[bytes, bytes], writes: list[int]) -> list[tuple[int, bytes]]:
    held = Held()
    held.add(data, writes)
    merged = held.release()
    assert held.size == 0
    return merged


@given(TEXT, st.integers(1, 8))
def test_pieces_are_the_whole_cut_at_line_ends(data: bytes, count: int) -> None:
    parts = pieces(data, count)
    assert b"".join(parts) == data
    assert 1 <= len(parts) <= count
    assert all(part.endswith(b"\n") for part in parts[:-1])
    assert all(part.rstrip(b"\n").count(b"\n") == 0 for part in parts[1:])


@given(TEXT, TEXT, RUNS)
def test_each_stream_stays_what_it_was(out: bytes, err: bytes, runs: list[int]) -> None:
    merged = merge((out, err), runs)
    assert b"".join(piece for stream, piece in merged if stream == 0) == out
    assert b"".join(piece for stream, piece in merged if stream == 1) == err


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=20))
def test_lines_come_in_the_order_of_their_runs(order: list[int]) -> None:
    """One line per write: then the order is exactly known."""
    lines = [(stream, f"{number}\n".encode()) for number, stream in enumerate(order)]
    streams = tuple(b"".join(line for stream, line in lines if stream == wanted) for wanted in (0, 1))
    merged = merge((streams[0], streams[1]), order)
    assert b"".join(piece for _, piece in merged) == b"".join(line for _, line in lines)


@given(TEXT.filter(bool), TEXT.filter(bool), RUNS)
def test_the_order_follows_the_runs(out: bytes, err: bytes, runs: list[int]) -> None:
    streams = [stream for stream, _ in merge((out, err), runs)]
    told = iter(runs)
    followed = [stream for stream in streams if any(stream == run for run in told)]
    assert streams[: len(followed)] == followed, "what no run accounts for comes last"


def test_more_writes_than_lines() -> None:
    assert merge((b"a\nb", b"x\n"), [0, 1, 0]) == [(0, b"a\n"), (1, b"x\n"), (0, b"b")]
    assert merge((b"ab", b"x"), [0, 1, 0]) == [(0, b"ab"), (1, b"x")]
    assert merge((b"a\n", b"x\n"), []) == [(0, b"a\n"), (1, b"x\n")]
    assert merge((b"", b"x"), [1, 1]) == [(1, b"x")]
    assert merge((b"", b""), [0]) == []


@example(begin=0, count=3, looks=[(1, 0, 0, False), (0, 0, 0, False), (0, 2, 3, False)])
@given(
    st.integers(0, 1),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=12),
)
def test_whenever_it_is_looked_at_lines_come_in_order(
    begin: int, count: int, looks: list[tuple[int, int, int, bool]]
) -> None:
    """A program writes lines in turn; its bytes can be read a moment before the kernel tells of them.

    Each look reads one stream, then the other, then what was told, and the program goes on in between. Sometimes it
    has been long enough: what is certain goes out, although the program does not pause.
    """
    order = [(begin + number) % 2 for number in range(count)]
    lines = [(stream, f"{number}\n".encode()) for number, stream in enumerate(order)]
    steps = [(kind, stream, line) for stream, line in lines for kind in ("bytes", "told")]
    pipes, told, held = (bytearray(), bytearray()), list[int](), Held()
    seen: list[tuple[int, bytes]] = []

    def go_on(count: int) -> None:
        for kind, stream, line in [steps.pop(0) for _ in range(min(count, len(steps)))]:
            if kind == "bytes":
                pipes[stream].extend(line)
            else:
                told.append(stream)

    def read(stream: int) -> bytes:
        data = bytes(pipes[stream])
        pipes[stream].clear()
        return data

    def look(first: int, second: int) -> None:
        out = read(0)
        go_on(first)
        err = read(1)
        go_on(second)
        held.add((out, err), list(told))
        told.clear()

    for before, first, second, long_enough in looks:
        if long_enough:
            go_on(max(before, 1))
            held.add((b"", b""), list(told))
            told.clear()
            seen.extend(held.release(told_only=True))
        go_on(before)
        look(first, second)
        if held.is_clear:
            seen.extend(held.release())
    go_on(len(steps))
    look(0, 0)
    seen.extend(held.release())
    assert b"".join(piece for _, piece in seen) == b"".join(line for _, line in lines)
