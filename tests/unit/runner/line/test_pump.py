"""The pump: every byte arrives, in order, both ways; ends are passed on; nothing waits in memory, nothing spins."""

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runner.line import pump as pumps
from holdfast.runner.line import witness as witnesses
from holdfast.runner.line.pump import BUFFER, Pump
from holdfast.runner.line.witness import Witness
from holdfast.runner.loop import Loop
from support.waiting import wait_for


class Room:
    """A pump between two socket pairs, and the loop that drives it."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.left, a = socket.socketpair()
        self.right, b = socket.socketpair()
        self.descriptors = (a.fileno(), b.fileno())
        self.ended = 0
        for end in (self.left, self.right):
            end.settimeout(10)
        self.pump = Pump(loop, a, b, self._end)

    def _end(self) -> None:
        self.ended += 1

    def turn(self, rounds: int = 50) -> None:
        """Let the loop do what there is to do; it must not find anything for ever."""
        for _ in range(rounds):
            self.loop.after(0, lambda: None)
            self.loop.run_once()

    def wake_ups(self) -> int:
        """How often the loop finds something to do before a fifth of a second is over."""
        over: list[bool] = []
        self.loop.after(0.2, lambda: over.append(True))
        rounds = 0
        while not over:
            self.loop.run_once()
            rounds += 1
        return rounds

    def run_until_ended(self) -> None:
        deadline = time.monotonic() + 20
        while not self.ended:
            assert time.monotonic() < deadline, "the pump never ends"
            self.loop.after(0.05, lambda: None)
            self.loop.run_once()

    def close(self) -> None:
        self.left.close()
        self.right.close()


@pytest.fixture(scope="module")
def loop() -> Loop:
    return Loop()


@pytest.fixture
def room(loop: Loop) -> Iterator[Room]:
    room = Room(loop)
    yield room
    room.close()
    room.run_until_ended()
    assert room.ended == 1
    for descriptor in room.descriptors:
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_both_ways(room: Room) -> None:
    room.left.sendall(b"there")
    room.right.sendall(b"back")
    room.turn()
    assert (room.right.recv(100), room.left.recv(100)) == (b"there", b"back")


def test_one_end_is_passed_on_and_the_other_way_goes_on(room: Room) -> None:
    room.left.sendall(b"question")
    room.left.shutdown(socket.SHUT_WR)
    room.turn()
    assert room.right.recv(100) == b"question" and room.right.recv(100) == b""
    room.right.sendall(b"answer")
    room.turn()
    assert room.left.recv(100) == b"answer" and not room.ended


def test_who_does_not_read_is_not_read_for(room: Room) -> None:
    room.left.setblocking(False)
    sent = 0
    try:
        while True:
            sent += room.left.send(bytes(BUFFER))
            room.turn(5)
    except BlockingIOError:
        pass
    room.turn()
    assert sum(len(flow.waiting) for flow in room.pump._flows) <= BUFFER
    assert room.wake_ups() < 10, "it spins while it waits"
    received = 0
    while received < sent:
        received += len(room.right.recv(1 << 20))
        room.turn(5)
    assert received == sent


def test_a_hang_up_in_the_middle_does_not_spin(room: Room) -> None:
    """Full on the one side, gone on the other: nothing can be done but to notice."""
    room.right.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            room.right.send(bytes(BUFFER))
            room.turn(3)
    room.right.close()
    assert room.wake_ups() < 10, "the loop was woken for nothing"


def test_the_last_word_arrives_though_nobody_listens(room: Room) -> None:
    """One side answers and closes, while the other still sends: the answer must not be lost."""
    room.left.sendall(bytes(1000))
    room.right.sendall(b"403")
    room.right.close()
    room.left.sendall(bytes(1000))
    room.turn()
    room.left.sendall(bytes(1000))
    room.turn()
    assert room.left.recv(100) == b"403"
    assert room.left.recv(100) == b""


def test_nobody_lingers_for_ever(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumps, "LINGER_SECONDS", 0.05)
    room = Room(loop)
    room.right.close()
    room.left.sendall(b"x")
    room.run_until_ended()
    assert room.left.recv(1) == b""
    room.close()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=200_000), max_size=6), st.integers(1, 100_000))
def test_every_byte_arrives_in_order(loop: Loop, pieces: list[bytes], step: int) -> None:
    room = Room(loop)
    received = bytearray()

    def send() -> None:
        for piece in pieces:
            room.left.sendall(piece)
        room.left.shutdown(socket.SHUT_WR)

    def receive() -> None:
        while data := room.right.recv(step):
            received.extend(data)
        room.right.close()

    workers = [threading.Thread(target=work) for work in (send, receive)]
    for worker in workers:
        worker.start()
    room.run_until_ended()
    for worker in workers:
        worker.join(30)
    room.close()
    assert bytes(received) == b"".join(pieces)


def test_small_pieces_are_sent_at_once(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        taken, _address = server.accept()
        left, right = socket.socketpair()
        with left:
            pump = Pump(loop, taken, right, lambda: None)
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert caller.fileno() > 0
            pump.close()


class Talk:
    """A program that talks with home through a pump: over TCP, which tells an end from a reset."""

    def __init__(self, loop: Loop, witness: Witness) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.program = socket.create_connection(server.getsockname(), timeout=10)
            taken, _address = server.accept()
        self.home, inner = socket.socketpair()
        self.pump = Pump(loop, taken, inner, lambda: None, witness.of_new_connection())

    def close(self) -> None:
        self.program.close()
        self.home.close()
        if not self.pump.closed:
            self.pump.close()


@pytest.fixture
def witness(loop: Loop) -> Witness:
    return Witness(loop)


def run(loop: Loop, rounds: int = 20) -> None:
    for _ in range(rounds):
        loop.after(0, lambda: None)
        loop.run_once()


def test_an_end_that_home_confirms_is_an_end(loop: Loop, witness: Witness) -> None:
    asked: list[int] = []
    witness.arrived(asked.append)
    talk = Talk(loop, witness)
    talk.home.sendall(b"all of it")
    talk.home.close()
    run(loop)
    assert talk.program.recv(100) == b"all of it" and asked == [1]
    talk.program.setblocking(False)
    with pytest.raises(BlockingIOError):  # nothing is told before it is known
        talk.program.recv(100)
    witness.answered(1)
    run(loop)
    assert talk.program.recv(100) == b""
    talk.close()


@pytest.mark.parametrize("how", ["at once", "before it answers", "and another has come", "it never answers"])
def test_an_end_that_nobody_confirms_is_a_reset(
    loop: Loop, witness: Witness, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home was killed: what it has said is there, and nobody takes it for all."""
    monkeypatch.setattr(witnesses, "PATIENCE_SECONDS", 0.05)
    witness.arrived(lambda _number: None)
    talk = Talk(loop, witness)
    talk.home.sendall(b"half of")
    run(loop)
    if how in ("at once", "and another has come"):
        witness.lost()
    if how == "and another has come":
        witness.arrived(lambda number: witness.answered(number))
    talk.home.close()
    run(loop)
    if how == "before it answers":
        witness.lost()
    if how == "it never answers":

        def given_up() -> bool:
            run(loop)
            return talk.pump.closed

        wait_for(given_up, "it is waited for no longer")
    assert talk.pump.closed
    received = bytearray()
    with pytest.raises(ConnectionResetError):
        while data := talk.program.recv(100):
            received += data
    assert bytes(received) == b"half of"
    talk.close()


def test_a_program_that_hangs_up_is_nothing_to_ask_about(loop: Loop, witness: Witness) -> None:
    asked: list[int] = []
    witness.arrived(asked.append)
    talk = Talk(loop, witness)
    talk.program.close()
    run(loop)
    assert talk.home.recv(100) == b"" and not asked
    talk.home.close()
    run(loop)
    witness.answered(1)
    assert asked == [1] and talk.pump.closed


def test_who_is_hung_up_on_before_the_end_is_reset(loop: Loop, witness: Witness) -> None:
    """As before a checkpoint: the connection cannot be kept."""
    talk = Talk(loop, witness)
    talk.pump.close()
    with pytest.raises(ConnectionResetError):
        talk.program.recv(100)
    talk.close()
