"""What is written to a program: in order, and what has a name once, however often it is sent."""

import os
from collections.abc import Iterator

import pytest

from holdfast.runner.processes.input import KEEP_NAMES, Input


class Pipe:
    def __init__(self) -> None:
        self.end, fd = os.pipe()
        os.set_blocking(self.end, False)
        os.set_blocking(fd, False)
        self.fd = fd
        self.input = Input(fd, lambda _writing: None)
        self.told: list[tuple[str, bool]] = []

    def send(self, name: str | None, data: bytes) -> None:
        label = str(name)
        self.input.write_once(
            name,
            data,
            lambda taken: self.told.append((f"first {label}", taken)),
            lambda taken: self.told.append((label, taken)),
        )

    def read(self) -> bytes:
        try:
            return os.read(self.end, 1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.fd)
    os.close(pipe.end)


def test_one_name_is_written_once(pipe: Pipe) -> None:
    pipe.send("a", b"one\n")
    pipe.send("a", b"one\n")
    pipe.send("b", b"two\n")
    assert pipe.read() == b"one\ntwo\n"
    assert pipe.told == [("first a", True), ("a", True), ("a", True), ("first b", True), ("b", True)]
    assert pipe.input.taken == 8


def test_who_asks_again_while_it_is_on_its_way_waits_too(pipe: Pipe) -> None:
    long = b"x" * (1 << 20)
    pipe.send("a", long)
    pipe.send("a", long)
    assert pipe.told == []
    got = 0
    while piece := pipe.read():
        got += len(piece)
        pipe.input.flush()
    assert got == len(long)
    assert pipe.told == [("first a", True), ("a", True), ("a", True)]


def test_what_nobody_will_read_is_told_to_all(pipe: Pipe) -> None:
    pipe.send("a", b"x" * (1 << 20))
    pipe.send("a", b"x" * (1 << 20))
    pipe.input.abandon()
    pipe.send("a", b"x" * (1 << 20))
    assert pipe.told == [("first a", False), ("a", False), ("a", False), ("a", False)]


def test_what_was_written_before_the_end_of_input_stays_written(pipe: Pipe) -> None:
    pipe.send("a", b"bye\n")
    pipe.input.close_after(lambda: None)
    pipe.send("a", b"bye\n")
    assert pipe.told[-1] == ("a", True)
    assert pipe.read() == b"bye\n"


def test_without_a_name_each_counts(pipe: Pipe) -> None:
    pipe.send(None, b"x")
    pipe.send(None, b"x")
    assert pipe.read() == b"xx"


def test_names_are_not_kept_for_ever(pipe: Pipe) -> None:
    for number in range(KEEP_NAMES + 2):
        pipe.send(str(number), b"x")
    pipe.send(str(KEEP_NAMES), b"x")
    assert len(pipe.read()) == KEEP_NAMES + 2
    pipe.send("0", b"x")
    assert pipe.read() == b"x"
