"""WebSockets into a session: who may open one, and that every byte goes through as it is."""

import os
import threading
import time
from typing import Any

import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.raw import (
    HANDSHAKE,
    Raw,
    close_frame,
    flood,
    forget,
    frame,
    heard,
    parse,
    raw,
    send,
    target,
    whole,
)
from support.gateway.visitor import Site, open_site
from support.waiting import wait_for

ECHO = target(["accept"], ["echo"])
OTHER_ID = "ses-01aaaaaaaaaaaaaaaaaaaaaaaa"


def same_origin(site: Site) -> bytes:
    return f"Origin: {site.origin()}".encode()


def opened(site: Site, where: bytes = ECHO, *lines: bytes, **more: Any) -> Raw:
    """A WebSocket, opened with the key."""
    connection = Raw(site)
    head = connection.websocket(where, *lines, **more)
    assert head.startswith(b"HTTP/1.1 101 "), head
    return connection


# -- who may open one --------------------------------------------------------------------------------------------------


def test_nobody_opens_one_without_anything(script: Site) -> None:
    forget(script)
    with raw(script) as visitor:
        assert visitor.websocket(ECHO, same_origin(script), key=False).startswith(b"HTTP/1.1 401 ")
        assert b"unauthorized" in visitor.rest()
    assert heard(script) == [], "the program was not asked"


@pytest.mark.parametrize(
    "origin",
    [
        None,
        b"Origin: null",
        b"Origin: http://evil.example",
        b"Origin: http://localhost",
        b"Origin: http://3100--ses-01aaaaaaaaaaaaaaaaaaaaaaaa.localhost",
        "other port",
        "other scheme",
        "no port",
        "dot",
    ],
)
def test_a_cookie_is_good_for_pages_of_its_own_host_only(script: Site, origin: bytes | str | None) -> None:
    own = script.origin()
    named = {
        "other port": script.origin(3000),
        "other scheme": own.replace("http:", "https:"),
        "no port": own.rpartition(":")[0],
        "dot": own.replace(".localhost", ".localhost."),
    }
    line = f"Origin: {named[origin]}".encode() if isinstance(origin, str) else origin
    cookie = script.enter()
    forget(script)
    with raw(script) as visitor:
        head = visitor.websocket(ECHO, *([line] if line else []), cookie=cookie)
        assert head.startswith(b"HTTP/1.1 403 "), head
    assert heard(script) == []
    with raw(script) as visitor:
        assert visitor.websocket(ECHO, same_origin(script), cookie=cookie).startswith(b"HTTP/1.1 101 ")


def test_two_origins_are_none(script: Site) -> None:
    cookie = script.enter()
    with raw(script) as visitor:
        head = visitor.websocket(ECHO, b"Origin: http://evil.example", same_origin(script), cookie=cookie)
        assert head.startswith(b"HTTP/1.1 400 ")


def test_a_cookie_of_another_place_opens_none(script: Site, site: Site) -> None:
    for other in (site.enter(), "__Host-hf=made-up", f"__Host-hf={'a' * 43}", "__Host-hf="):
        with raw(script) as visitor:
            assert visitor.websocket(ECHO, same_origin(script), cookie=other).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"OPTIONS", b"CONNECT"])
def test_it_is_opened_by_get(script: Site, method: bytes) -> None:
    forget(script)
    where = b"a:80" if method == b"CONNECT" else ECHO
    with raw(script) as visitor:
        assert visitor.websocket(where, method=method).startswith(b"HTTP/1.1 400 ")
    assert heard(script) == []


def test_none_is_opened_while_an_earlier_answer_is_due(script: Site) -> None:
    """Two would write on one connection, and one could pass for the other."""
    slow = target(["sleep", 1], send(whole(b"late")))
    with raw(script) as visitor:
        visitor.ask(slow)
        visitor.ask(ECHO, *HANDSHAKE)
        assert b" 101 " not in visitor.rest()


def test_names_of_nobody_are_refused(site: Site) -> None:
    for host in ("evil.example", f"3000--{OTHER_ID}.localhost.evil", f"3000--{OTHER_ID}.localhost.", ""):
        with raw(site) as visitor:
            assert visitor.websocket(b"/", host=host).startswith(b"HTTP/1.1 421 "), host
    for path in (b"/v1/sessions/x/terminal", b"/v1/threads/x/ws"):
        with raw(site) as visitor:
            assert visitor.websocket(path, host="evil.example").startswith(b"HTTP/1.1 421 ")


# -- what of it reaches the program ------------------------------------------------------------------------------------


def test_nothing_of_ours_goes_in(script: Site) -> None:
    cookie = script.enter()
    forget(script)
    cookies = f'a=1; {cookie}; b="; {cookie}; c=2'
    with raw(script) as visitor:  # two of ours are none, so the key lets it in
        lines = (f"Cookie: {cookies}".encode(), b"cOOkie:   " + cookie.encode(), b"X-HOLDFAST-Thing: 1")
        assert visitor.websocket(ECHO, *lines).startswith(b"HTTP/1.1 101 ")
    [told] = heard(script)
    head = told["head"].lower()
    assert cookie.partition("=")[2].lower() not in head and script.daemon.key.lower() not in head
    assert "x-holdfast" not in head and "__host-hf" not in head
    assert "a=1" in head and "c=2" in head


def test_our_cookie_is_found_in_any_of_several_headers(script: Site) -> None:
    """A proxy with HTTP/2 on one side may make several of one."""
    cookie = script.enter()
    for lines in (["a=1", cookie], [cookie, "a=1"], [f"a=1; {cookie}", "b=2"]):
        with raw(script) as visitor:
            cookies = [f"Cookie: {line}".encode() for line in lines]
            assert visitor.websocket(ECHO, same_origin(script), *cookies, key=False).startswith(b"HTTP/1.1 101 ")


def test_compression_is_not_offered(script: Site) -> None:
    forget(script)
    opened(script, ECHO, b"Sec-WebSocket-Extensions: permessage-deflate").socket.close()
    assert "permessage-deflate" not in heard(script)[0]["head"].lower()


@pytest.mark.parametrize("protocol", [b"tty", b"vite-hmr", b"graphql-transport-ws"])
def test_subprotocols_are_the_programs_own(script: Site, protocol: bytes) -> None:
    where = target(["accept", f"Sec-WebSocket-Protocol: {protocol.decode()}"], ["echo"])
    forget(script)
    with raw(script) as visitor:
        _, headers = parse(visitor.websocket(where, b"Sec-WebSocket-Protocol: " + protocol + b", other"))
        assert headers["sec-websocket-protocol"] == protocol.decode()
        assert headers["sec-websocket-accept"]
    assert f"{protocol.decode()}, other" in heard(script)[0]["head"]


# -- frames ------------------------------------------------------------------------------------------------------------

FRAMES = {
    "text": frame("käse".encode()),
    "binary": frame(bytes(range(256)), opcode=2),
    "empty": frame(b""),
    "ping": frame(b"are you there", opcode=9),
    "pong": frame(b"", opcode=10),
    "fragments, with a ping between": frame(b"one ", last=False)
    + frame(b"p", opcode=9)
    + frame(b"two ", opcode=0, last=False)
    + frame(b"three", opcode=0),
    "many": frame(b"x" * 10) * 500,
    "middle": frame(b"m" * 40_000),
    "rubbish": bytes([0xFF, 0x80, 1, 2, 3, 4]),
}


@pytest.mark.parametrize("what", FRAMES)
def test_frames_go_through_as_they_are(script: Site, what: str) -> None:
    visitor = opened(script)
    visitor.socket.sendall(FRAMES[what])
    assert visitor.read(len(FRAMES[what])) == FRAMES[what]
    visitor.socket.close()


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4321, 4999])
def test_close_codes_go_both_ways(script: Site, code: int) -> None:
    said = close_frame(code, b"why")
    visitor = opened(script)
    visitor.socket.sendall(said)
    assert visitor.read(len(said)) == said
    visitor.socket.close()
    told = bytes([0x88, 5]) + code.to_bytes(2) + b"bye"
    with raw(script) as visitor:
        assert visitor.websocket(target(["accept"], send(told))).startswith(b"HTTP/1.1 101 ")
        assert visitor.rest() == told, "and then the connection ends"


def test_a_program_that_just_hangs_up(script: Site) -> None:
    """There is no close frame, and none is made up: browsers call this 1006."""
    with raw(script) as visitor:
        visitor.websocket(target(["accept"], send(b"\x81\x05hello"), ["reset"]))
        assert visitor.rest() == b"\x81\x05hello"


def test_a_visitor_that_just_leaves(script: Site) -> None:
    forget(script)
    where = target(["accept"], ["wait"])
    opened(script, where).socket.close()
    wait_for(lambda: heard(script)[0]["ended"] == "b''", "the program sees the end", 10)


def test_large_messages_and_a_slow_reader(script: Site) -> None:
    size = 48 << 20
    sent = frame(os.urandom(1 << 20) * (size >> 20), opcode=2)
    visitor = opened(script)
    sending = threading.Thread(target=visitor.socket.sendall, args=(sent,))
    sending.start()
    came = bytearray()
    while len(came) < len(sent):
        came += visitor.socket.recv(1 << 20)
    sending.join()
    assert bytes(came) == sent
    visitor.socket.close()


def test_what_is_said_before_the_program_has_opened_waits(script: Site) -> None:
    where = target(["sleep", 0.5], ["accept"], ["echo"])
    early = frame(b"early")
    with raw(script) as visitor:
        assert visitor.websocket(where, rest=early).startswith(b"HTTP/1.1 101 ")
        visitor.socket.sendall(frame(b"late", mask=b"abcd"))
        assert visitor.read(len(early)) == early
        assert visitor.read(10) == frame(b"late", mask=b"abcd")


def test_what_the_program_says_with_its_handshake_comes(script: Site) -> None:
    with raw(script) as visitor:
        visitor.websocket(target(["accept"], send(b"\x81\x02hi"), ["echo"]))
        assert visitor.read(4) == b"\x81\x02hi"


# -- programs that do not open it --------------------------------------------------------------------------------------


def test_a_refusal_is_passed_on(script: Site) -> None:
    body = b'{"why": "not you"}'
    chunked = b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n12\r\n" + body + b"\r\n0\r\n\r\n"
    for said in (whole(body, b"X-A: 1", status=b"403 No"), chunked):
        with raw(script) as visitor:
            visitor.ask(target(send(said)), *HANDSHAKE)
            status, headers, found = visitor.answer()
            assert (status, headers["x-a"], found) == (403, "1", body)
            assert visitor.rest() == b""


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 999 No\r\n\r\n",
        b"",
        b"HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 101 X\r\nX: ",
        b"HTTP/1.1 403 No\r\n\r\n",
    ],
)
def test_programs_that_make_no_sense(script: Site, said: bytes) -> None:
    with raw(script) as visitor:
        more = [flood(b"x" * 1000, 200)] if said.endswith((b"X: ", b"403 No\r\n\r\n")) else []
        visitor.ask(target(send(said), *more), *HANDSHAKE)
        status, _, body = visitor.answer()
        assert status == 502 and b"bad_answer" in body


def test_nothing_listens(site: Site) -> None:
    with raw(site) as visitor:
        visitor.ask(b"/", *HANDSHAKE, host=site.host(3999))
        status, _, body = visitor.answer()
        assert status == 409 and b"nothing_listens" in body


def test_a_flood_of_continues_ends(script: Site) -> None:
    with raw(script) as visitor:
        began = time.monotonic()
        visitor.ask(target(flood(b"HTTP/1.1 100 Continue\r\n\r\n", 100_000)), *HANDSHAKE)
        assert visitor.answer()[0] == 502
        assert time.monotonic() - began < 10


def test_they_are_counted() -> None:
    """At most so many connections lead into a session; who leaves makes room."""
    with DaemonProcess(gateway_max_connections=8) as daemon:
        site = open_site(daemon)
        many = [opened(site, b"/ws") for _ in range(8)]
        with raw(site) as visitor:
            assert visitor.websocket(b"/ws").startswith(b"HTTP/1.1 503 ")
        many.pop().socket.close()

        def is_room() -> bool:
            with raw(site) as visitor:
                return visitor.websocket(b"/ws").startswith(b"HTTP/1.1 101 ")

        wait_for(is_room, "there is room again", 10)
        for one in many:
            one.socket.close()
