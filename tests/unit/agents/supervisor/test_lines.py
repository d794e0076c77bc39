"""Lines out of a process's output, with their places there."""

import asyncio
import json

import pytest

from holdfast.agents.supervisor.lines import BROKE, CUT, MOST_LINE_BYTES, WENT_ON, Lines, OutputLine, lines_of
from holdfast.protocol import messages
from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.sessions.use.follow import Chunk

OUTPUT = b'{"a": 1}\nnoise\n[1]\n{"b": "\xc3\xa9"}\n{"c"'


def test_any_way_of_cutting_gives_the_same() -> None:
    whole = Lines().feed(Chunk(STDOUT, 10, OUTPUT))
    assert [line.message for line in whole] == [{"a": 1}, {"b": "é"}]
    assert (whole[0].start, whole[0].end) == (10, 19)
    for size in range(1, len(OUTPUT)):
        lines, found = Lines(), []
        for at in range(0, len(OUTPUT), size):
            found += lines.feed(Chunk(STDOUT, 10 + at, OUTPUT[at : at + size]))
        assert found == whole


def test_who_reads_on_from_a_lines_end_gets_the_next() -> None:
    first, second = Lines().feed(Chunk(STDOUT, 0, OUTPUT))
    assert Lines().feed(Chunk(STDOUT, first.end, OUTPUT[first.end :])) == [second]


def test_stderr_in_the_middle_of_a_line_does_no_harm() -> None:
    lines = Lines()
    assert lines.feed(Chunk(STDOUT, 0, b'{"a"')) == []
    assert lines.feed(Chunk(STDERR, 4, b"oh\n")) == []
    (line,) = lines.feed(Chunk(STDOUT, 7, b": 1}\n"))
    assert (line.start, line.end, line.message) == (0, 12, {"a": 1})


def test_a_cut_is_a_line_with_a_place_of_its_own() -> None:
    """In the middle of another one it comes behind that: lines have an order."""
    lines = Lines()
    (first,) = lines.feed(Chunk(STDOUT, 0, b'{"a": 1}\n'))
    (cut,) = lines.feed(Chunk(STDERR, 9, b"warning\n" + messages.CUT))
    assert (first.end, cut.start, cut.end, cut.message) == (9, 17, 17 + len(messages.CUT), CUT)
    words = messages.BROKE + messages.WENT_ON
    assert lines.feed(Chunk(STDOUT, 100, b'{"b"')) == [] == lines.feed(Chunk(STDERR, 104, words))
    at = 104 + len(words)
    whole, *behind = lines.feed(Chunk(STDOUT, at, b': 1}\n{"c": 2}\n'))
    assert (whole.start, whole.end, whole.message) == (100, at + 5, {"b": 1})
    assert behind == [
        OutputLine(at + 5, at + 5, BROKE),
        OutputLine(at + 5, at + 5, WENT_ON),
        OutputLine(at + 5, at + 14, {"c": 2}),
    ]


def test_a_line_whose_beginning_is_lost_is_none() -> None:
    lines = Lines()
    lines.feed(Chunk(STDOUT, 0, b'{"a": '))
    assert [line.message for line in lines.feed(Chunk(STDOUT, 50, b'{"x": 1}\n{"b": 2}\n', dropped=44))] == [{"b": 2}]


def test_a_line_that_is_too_long_costs_nothing_but_itself() -> None:
    lines = Lines(most=100)
    long = json.dumps({"long": "x" * 500}).encode()
    found = []
    for at in range(0, len(long), 50):
        found += lines.feed(Chunk(STDOUT, at, long[at : at + 50]))
    found += lines.feed(Chunk(STDOUT, len(long), b'\n{"b": 2}\n'))
    assert [line.message for line in found] == [{"b": 2}]


def test_a_line_of_very_many_values_is_skipped() -> None:
    """To parse it would hold up everybody for a second, and take fifty times its size."""
    heavy = b'{"a":[' + b"[]," * 2_000_000 + b"[]]}\n"
    assert len(heavy) < MOST_LINE_BYTES
    found = Lines().feed(Chunk(STDOUT, 0, heavy + b'{"b":1}\n'))
    assert [line.message for line in found] == [{"b": 1}]


@pytest.mark.anyio
async def test_very_many_lines_are_read_in_short_steps() -> None:
    data = b"\n" * 500_000 + b'{"a":"' + b"x" * 100_000 + b'"}\n{"b":1}\n'
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    found = [line async for line in lines_of(Lines(), Chunk(STDOUT, 10, data, dropped=5))]
    assert found == Lines().feed(Chunk(STDOUT, 10, data, dropped=5))
    assert [list(line.message) for line in found] == [["a"], ["b"]] and found[-1].end == 10 + len(data)
    assert turns > 10
