"""A program waits for those who follow it, also for one that is still on its way, and for nobody for long."""

import socket
from collections.abc import Iterator

import pytest

from holdfast.protocol.frames import Decoder
from holdfast.protocol.messages import STDOUT
from holdfast.runner.loop import Loop
from holdfast.runner.output import STALLED_SECONDS, OutputFeed, ProgramOutput

LIMIT = 1 << 12


class Program:
    """Writes for as long as it may, as the shell's commands and processes do."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.output = ProgramOutput(LIMIT)
        self.held_up = False

    def write(self, count: int) -> None:
        """In pieces, until it is held up."""
        for _ in range(count // 64):
            if self.held_up:
                return
            self.output.add(STDOUT, b"%063d\n" % self.output.ring.written)
            if self.output.is_ahead():
                self.held_up = True
                self.output.wait_for_room(self._go_on)

    def _go_on(self) -> None:
        self.held_up = False


class Timers:
    """A loop whose time passes when it is told to."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def pass_time(self, seconds: float) -> None:
        for timer in self._loop._timers:
            timer.when -= seconds
        self._loop.after(0, lambda: None)
        self._loop.run_once()


@pytest.fixture(scope="module")
def loop() -> Loop:
    return Loop()


@pytest.fixture
def program(loop: Loop) -> Program:
    return Program(loop)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_nobody_is_waited_for_when_nobody_comes(program: Program) -> None:
    program.write(4 * LIMIT)
    assert program.output.ring.written == 4 * LIMIT


def test_what_is_written_before_an_expected_follower_comes_is_kept(
    program: Program, ends: tuple[socket.socket, socket.socket]
) -> None:
    program.output.expect_follower(program.loop)
    program.write(4 * LIMIT)
    assert program.held_up
    assert program.output.ring.start == 0
    feed = OutputFeed(program.loop, ends[0], program.output, 0)
    assert not program.held_up
    decoder = Decoder()
    decoder.add(ends[1].recv(1 << 20))
    frame = decoder.next()
    assert frame is not None
    assert frame[0] == {"offset": 0, "stream": STDOUT}
    assert len(frame[1]) == program.output.ring.written
    feed.close()


def test_a_follower_that_wants_only_what_is_new_sets_the_program_free(
    program: Program, ends: tuple[socket.socket, socket.socket]
) -> None:
    program.output.expect_follower(program.loop)
    program.write(4 * LIMIT)
    feed = OutputFeed(program.loop, ends[0], program.output, program.output.ring.written)
    assert not program.held_up
    feed.close()


def test_one_that_never_comes_is_not_waited_for_any_longer(program: Program) -> None:
    program.output.expect_follower(program.loop)
    program.write(4 * LIMIT)
    Timers(program.loop).pass_time(STALLED_SECONDS - 1)
    assert program.held_up
    Timers(program.loop).pass_time(1)
    assert not program.held_up
