"""Bodies: streamed both ways in flat memory, and an answer that breaks off never looks like a whole one."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable

import pytest

from support.gateway.raw import Raw, flood, forget, heard, parse, raw, rss_mb, send, target, until, whole
from support.gateway.visitor import Site
from support.waiting import wait_for

MIB = 1 << 20
GIB = 1 << 30
FLAT_MB = 32
PIECE = b"\xa5" * MIB


class Watched:
    """The daemon's memory at its highest while a block runs."""

    def __init__(self, site: Site) -> None:
        self._pid = site.daemon.pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._highest = 0.0

    def __enter__(self) -> Callable[[], float]:
        before = rss_mb(self._pid)
        self._thread.start()
        return lambda: self._highest - before

    def __exit__(self, *_what: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self._highest = max(self._highest, rss_mb(self._pid))


def drain(visitor: Raw, size: int) -> int:
    """Take so many bytes of a body; return how many came before the connection ended."""
    room, count = memoryview(bytearray(MIB)), len(visitor.data)
    while count < size and (took := visitor.socket.recv_into(room)):
        count += took
    return count


# -- large ones --------------------------------------------------------------------------------------------------------


def test_a_gigabyte_comes_out_in_flat_memory(script: Site) -> None:
    where = target(send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % GIB), flood(b"x", GIB >> 16, 65536))
    with raw(script) as warm:
        warm.ask(target(send(whole(b"x" * 1000)))).answer()
    with Watched(script) as growth, raw(script) as visitor:
        assert b" 200 " in visitor.ask(where).head(), visitor.rest()
        assert drain(visitor, GIB) == GIB
        assert growth() < FLAT_MB


@pytest.mark.parametrize("chunked", [False, True])
def test_a_gigabyte_goes_in_in_flat_memory(script: Site, chunked: bool) -> None:
    forget(script)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (GIB + 7)
    steps = ["read", GIB], until(b"0\r\n\r\n") if chunked else ["read", 7], send(whole(b"thanks"))
    with Watched(script) as growth, raw(script) as visitor:
        visitor.ask(target(*steps), framing, method=b"POST")
        for _ in range(GIB // MIB):
            visitor.socket.sendall(b"%x\r\n%b\r\n" % (MIB, PIECE) if chunked else PIECE)
        visitor.socket.sendall(b"0\r\n\r\n" if chunked else b"the end")
        assert visitor.answer()[2] == b"thanks"
        assert growth() < FLAT_MB
    assert heard(script)[0]["body"] >= GIB


def test_who_reads_slowly_costs_no_memory(script: Site) -> None:
    """The program is kept waiting instead."""
    forget(script)
    where = target(send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % GIB), flood(b"x", GIB >> 16, 65536))
    visitors = [Raw(script, receive_buffer=1 << 16) for _ in range(8)]
    with Watched(script) as growth:
        for one in visitors:
            one.ask(where)
            one.head()
        stands_still(script)
        assert growth() < FLAT_MB
    for one in visitors:
        one.socket.close()


def test_a_program_that_reads_slowly_costs_no_memory(script: Site) -> None:
    forget(script)
    with Watched(script) as growth, raw(script) as visitor:
        visitor.ask(target(["sleep", 60]), b"Content-Length: %d" % GIB, method=b"POST")
        visitor.socket.settimeout(2)
        sent = 0
        with pytest.raises(TimeoutError):
            while True:
                sent += visitor.socket.send(PIECE)
        assert sent < 64 * MIB and growth() < FLAT_MB


def stands_still(script: Site) -> None:
    """Wait until no program can write any more."""
    seen: list[list[int]] = []

    def has_stopped() -> bool:
        seen.append([one["flooded"] for one in heard(script) if "flooded" in one])
        time.sleep(0.3)
        return len(seen) > 1 and len(seen[-1]) == 8 and seen[-1] == seen[-2]

    wait_for(has_stopped, "the programs wait", 30)
    assert all(count < 200 for count in seen[-1]), "some megabytes are in the kernel's hands"


# -- as it happens -----------------------------------------------------------------------------------------------------


def test_each_event_is_there_before_the_next_is_sent(script: Site) -> None:
    """The program sends the second only when the first was answered."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    events = [b"data: %d\n\n" % number for number in range(5)]
    steps = [send(head)]
    for event in events:
        steps += [send(b"%x\r\n%b\r\n" % (len(event), event)), ["read", 4]]
    where = target(*steps, send(b"0\r\n\r\n"))
    with raw(script) as visitor:
        visitor.ask(where, b"Content-Length: 20", method=b"POST")
        visitor.head()
        for event in events:
            assert event in visitor.until(event)
            visitor.socket.sendall(b"next")
        assert visitor.until(b"0\r\n\r\n")


def test_an_early_answer_comes_while_the_body_still_goes_in(script: Site) -> None:
    with raw(script) as visitor:
        visitor.ask(target(send(whole(b"no", status=b"413 Large"))), b"Content-Length: %d" % GIB, method=b"PUT")
        visitor.socket.sendall(PIECE)
        status, _, body = visitor.answer()
        assert (status, body) == (413, b"no")
    assert script.by_key("/heard").status_code == 200, "and the next request works"


def test_after_an_early_answer_the_connection_is_in_step(script: Site) -> None:
    """What is left of the body is nobody's request."""
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    forget(script)
    with raw(script) as visitor:
        visitor.ask(target(send(whole(b"early"))), b"Content-Length: %d" % len(smuggled), method=b"POST")
        assert visitor.answer()[2] == b"early"
        visitor.socket.sendall(smuggled)
        visitor.ask(target(send(whole(b"second"))))
        assert visitor.answer()[2] == b"second"
    assert not any("/smuggled" in one["head"].split("\r\n")[0] for one in heard(script))


# -- 100-continue ------------------------------------------------------------------------------------------------------

EXPECT = b"Expect: 100-Continue"


def test_continue_comes_from_the_program(script: Site) -> None:
    steps = ["sleep", 0.3], send(b"HTTP/1.1 100 Continue\r\n\r\n"), ["read", 4], send(whole(b"thanks"))
    forget(script)
    with raw(script) as visitor:
        began = time.monotonic()
        visitor.ask(target(*steps), EXPECT, b"Content-Length: 4", method=b"POST")
        assert visitor.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert time.monotonic() - began > 0.25, "nobody else says so"
        visitor.socket.sendall(b"body")
        assert visitor.answer()[2] == b"thanks"
    assert "expect: 100-continue" in heard(script)[0]["head"].lower()


def test_a_program_that_knows_nothing_of_it_gets_the_body_all_the_same(script: Site) -> None:
    with raw(script) as visitor:
        visitor.ask(target(["read", 4], send(whole(b"thanks"))), EXPECT, b"Content-Length: 4", method=b"POST")
        assert visitor.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        visitor.socket.sendall(b"body")
        assert visitor.answer()[2] == b"thanks"


def test_a_program_that_wants_no_body(script: Site) -> None:
    """The client hears that at once, and keeps its body; whatever it sends next is no request."""
    forget(script)
    with raw(script) as visitor:
        where = target(send(whole(b"too large", status=b"417 No")))
        visitor.ask(where, EXPECT, b"Content-Length: 1000000000", method=b"PUT")
        head = visitor.head()
        status, headers = parse(head)
        assert status == 417 and headers["connection"] == "close"
        assert visitor.rest() == b"too large"


def test_who_may_not_come_in_is_told_before_the_body(script: Site) -> None:
    with raw(script) as visitor:
        visitor.ask(b"/", EXPECT, b"Content-Length: 1000000000", method=b"PUT", key=False)
        assert visitor.head().startswith(b"HTTP/1.1 401 ")


# -- answers without a body, or without a length -----------------------------------------------------------------------


@pytest.mark.parametrize("status", [b"204 No", b"304 Same"])
@pytest.mark.parametrize("headers", [(), (b"Content-Length: 7",)])
def test_answers_without_a_body(script: Site, status: bytes, headers: tuple[bytes, ...]) -> None:
    said = b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"ETag: x", b"", b""])
    with raw(script) as visitor:
        for _ in range(3):
            visitor.ask(target(send(said), ["next"]))
            found, told = parse(visitor.head())
            assert found == int(status[:3]) and told["etag"] == "x"
            assert "transfer-encoding" not in told
        assert visitor.data == b""


def test_head_says_how_long_the_body_would_be(script: Site) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    with raw(script) as visitor:
        for _ in range(2):
            visitor.ask(target(send(said)), method=b"HEAD")
            assert parse(visitor.head())[1]["content-length"] == "1234"
        assert visitor.data == b""


def test_chunks_trailers_and_extensions(script: Site) -> None:
    said = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
        b"3;ext=1\r\none\r\n4\r\n two\r\n0\r\nX-T: 1\r\nSet-Cookie: __Host-hf=evil\r\nX-Holdfast: 1\r\n\r\n"
    )
    with raw(script) as visitor:
        visitor.ask(target(send(said), ["next"]), b"Connection: close")
        assert visitor.answer()[2] == b"one two"
        assert visitor.rest() == b"", "the trailers stay inside"


def test_an_answer_that_ends_with_its_connection(script: Site) -> None:
    for line in (b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK\r\nConnection: close"):
        with raw(script) as visitor:
            assert visitor.ask(target(send(line + b"\r\n\r\nall of it"))).answer()[2] == b"all of it"


HALVES = {
    "of a length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf",
    "chunked, after a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    "chunked, in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf",
    "chunked, badly": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    "chunked, a last chunk that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
}


@pytest.mark.parametrize("what", HALVES)
@pytest.mark.parametrize("end", [[], [["reset"]]])
def test_half_an_answer_is_never_a_whole_one(script: Site, what: str, end: list[list[str]]) -> None:
    with raw(script) as visitor:
        # A moment between the two, so that the head is out already.
        began, rest = HALVES[what].split(b"half")
        visitor.ask(target(send(began + b"half"), ["sleep", 0.2], send(rest), *end))
        with pytest.raises((EOFError, ConnectionError, ValueError)):
            visitor.answer()
    with raw(script) as visitor:
        assert visitor.ask(target(send(whole(b"fine")))).answer()[2] == b"fine"


def test_a_program_that_is_killed_in_the_middle(site: Site) -> None:
    """Also where only the end of the connection says that an answer is whole, if the whole sandbox goes."""
    started = site.api("POST", "/processes", {"argv": ["python3", "/workspace/inside.py", "3200"]}).json()
    wait_for(lambda: 3200 in [one["port"] for one in site.api("GET", "/ports").json()["ports"]], "it listens", 30)
    with raw(site) as visitor:
        visitor.ask(f"/big?{GIB}".encode(), host=site.host(3200))
        visitor.head()
        drain(visitor, 5 * MIB)
        assert site.api("POST", f"/processes/{started['process_id']}/signal", {"signal": "KILL"}).status_code < 300
        with pytest.raises((EOFError, ConnectionError)):
            if drain(visitor, GIB) < GIB:
                raise EOFError


def test_what_was_sent_comes_whole_at_every_size(script: Site) -> None:
    """Around the sizes of every buffer on the way."""
    for size in (1, 65_535, 65_536, 65_537, 131_072, 262_143, 262_145, 1_048_577):
        piece = hashlib.sha256(str(size).encode()).digest()
        body = (piece * (size // 32 + 1))[:size]
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        count, rest = divmod(size, 32)
        with raw(script) as visitor:
            visitor.ask(target(send(head), flood(piece, count), send(piece[:rest]), ["next"]))
            visitor.head()
            assert visitor.read(size) == body


def test_a_client_that_leaves_is_noticed(script: Site) -> None:
    forget(script)
    with raw(script) as visitor:
        visitor.ask(target(["wait"]))
        wait_for(lambda: len(heard(script)) == 1, "the program is asked", 10)
        visitor.socket.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: heard(script)[0]["ended"] == "b''", "the program sees the end", 10)
