"""Heads: what could be read in two ways is refused, and nothing of ours goes in or comes out, however it is written."""

import base64
import time

import pytest

from support.gateway.raw import Raw, exchange, flood, forget, heard, parse, raw, send, target, whole
from support.gateway.visitor import FETCHES, NAVIGATES, Site

FINE = target(send(whole(b"fine")), ["next"])
SECRET = "a" * 43


def lines_of(headers: dict[str, str]) -> tuple[bytes, ...]:
    return tuple(f"{name}: {value}".encode() for name, value in headers.items())


def refused(found: bytes, *statuses: int) -> None:
    """It is refused, as the only answer."""
    assert found.startswith(tuple(b"HTTP/1.1 %d " % status for status in statuses or (400,))), found[:200]
    assert found.count(b"HTTP/1.1 ") == 1


# -- requests that could be read in two ways ---------------------------------------------------------------------------

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
AMBIGUOUS = {
    "two kinds of length": b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    "two kinds of length, turned": b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 34",
    "the same length twice": b"Content-Length: 4\r\nContent-Length: 4",
    "a list of lengths": b"Content-Length: 4, 4",
    "a length with a sign": b"Content-Length: +4",
    "a length below nothing": b"Content-Length: -4",
    "a length in hex": b"Content-Length: 0x4",
    "a length with a space": b"Content-Length: 4 4",
    "a length beyond all numbers": b"Content-Length: 99999999999999999999999999",
    "a space before the colon": b"Transfer-Encoding : chunked",
    "a tab before the colon": b"Transfer-Encoding\t: chunked",
    "chunked, not last": b"Transfer-Encoding: chunked, identity",
    "chunked, not only": b"Transfer-Encoding: gzip, chunked",
    "chunked twice": b"Transfer-Encoding: chunked, chunked",
    "chunked in two headers": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "something else": b"Transfer-Encoding: xchunked",
    "something before": b"Transfer-Encoding: \x0bchunked",
    "a folded line": b"Transfer-Encoding:\r\n chunked",
    "a folded other line": b"X-A: 1\r\n Transfer-Encoding: chunked",
    "a bare line feed": b"X-A: 1\nTransfer-Encoding: chunked",
    "a bare carriage return": b"X-A: 1\rTransfer-Encoding: chunked",
    "a zero byte": b"X-A: 1\0",
    "a zero byte in a name": b"X-A\0: 1",
    "a name with a space": b"X A: 1",
    "no name": b": 1",
    "no colon": b"X-A",
    "a second host": b"Host: localhost",
    "a host in another line": b"X: 1\r\nhOsT: localhost",
    "two keys": b"X-Holdfast-Key: wrong",
    "two origins": b"Origin: http://a\r\nOrigin: http://b",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_a_head_with_two_meanings_is_refused(script: Site, what: str) -> None:
    forget(script)
    with raw(script) as visitor:
        visitor.ask(FINE, AMBIGUOUS[what], method=b"POST", body=b"0\r\n\r\n" + SMUGGLED)
        visitor.socket.settimeout(5)
        found = visitor.rest()
    assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 421 ")), found[:200]
    assert heard(script) == [], "and nothing of it reaches the program"


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/0.9", b"GET / HTTP/2.0", b"GET /", b"GET / / HTTP/1.1", b"\0 / HTTP/1.1", b"BREW / HTTP/1.1"]
)
def test_a_first_line_that_is_none(script: Site, line: bytes) -> None:
    head = f"Host: {script.host()}\r\nX-Holdfast-Key: {script.daemon.key}\r\n\r\n".encode()
    refused(exchange(script, line + b"\r\n" + head))


def test_chunks_are_written_anew(script: Site) -> None:
    """Extensions and trailers, and how the pieces were cut, stay with the gateway."""
    forget(script)
    body = b"3;a=b\r\none\r\n4;x\r\n two\r\n0\r\nX-Holdfast-Key: t\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
    where = target(["until", "MA0KDQo="], send(whole(b"fine")), ["next"])
    with raw(script) as visitor:
        for _ in range(2):
            visitor.ask(where, b"Transfer-Encoding: chunked", method=b"POST", body=body)
            assert visitor.answer()[2] == b"fine"
    for one in heard(script):
        assert "6.6.6.6" not in one["head"] and "x-holdfast" not in one["head"].lower()


@pytest.mark.parametrize("chunk", [b"-1\r\n", b"zz\r\n", b"1\r\nab\r\n", b"1\nab", b"ffffffffffffffffff\r\n"])
def test_chunks_that_are_none(script: Site, chunk: bytes) -> None:
    with raw(script) as visitor:
        visitor.ask(FINE, b"Transfer-Encoding: chunked", method=b"POST", body=chunk + SMUGGLED)
        found = visitor.rest()
    assert found.count(b"HTTP/1.1 ") <= 2
    assert not any("/smuggled" in one["head"].split("\r\n")[0] for one in heard(script))


def test_pipelined_requests_are_answered_in_order(script: Site) -> None:
    answers = [whole(b"%d" % number) for number in range(5)]
    with raw(script) as visitor:
        for number, one in enumerate(answers):
            visitor.ask(target(["sleep", 0.1 * (5 - number)], send(one), ["next"]))
        assert [visitor.answer()[2] for _ in answers] == [b"%d" % number for number in range(5)]


# -- methods and targets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [b"TRACE", b"CONNECT"])
def test_methods_that_are_for_proxies(script: Site, method: bytes) -> None:
    forget(script)
    where = b"evil.example:80" if method == b"CONNECT" else FINE
    with raw(script) as visitor:
        refused(visitor.ask(where, b"Connection: close", method=method).rest())
    assert heard(script) == []


TARGETS = {
    b"http://evil.example/x": "/x",
    b"//evil.example/x": "//evil.example/x",
    b"/\\evil.example": "/\\evil.example",
    b"/@evil.example": "/@evil.example",
    b"/http://evil.example": "/http://evil.example",
    b"*": "*",
}


@pytest.mark.parametrize("where", TARGETS)
def test_a_target_leads_to_the_port_and_nowhere_else(script: Site, where: bytes) -> None:
    forget(script)
    with raw(script) as visitor:
        visitor.ask(where, b"Connection: close", method=b"OPTIONS" if where == b"*" else b"GET").rest()
    # A GET is asked again, once, where a connection that was used before ends without an answer.
    assert {one["head"].split(" ")[1] for one in heard(script)} == {TARGETS[where]}


@pytest.mark.parametrize("where", [b"http://user@evil:99", b"evil.example:80", b"http://", b"//", b"/\xff", b""])
def test_targets_that_are_none(script: Site, where: bytes) -> None:
    found = Raw(script).ask(where, b"Connection: close").rest()
    assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 502 ")) or where == b"//"


# -- nothing of ours goes in -------------------------------------------------------------------------------------------

COOKIES = {
    "alone": ["{}"],
    "in the middle": ["a=1; {}; b=2"],
    "in a second header": ["a=1", "{}"],
    "in a first header": ["{}", "a=1"],
    "with odd spaces": [
        "a=1;{};b=2",
    ],
    "with many spaces": ["a=1 ;   {}   ;b=2"],
    "with a tab": ["a=1;\t{}"],
    "between quotes of others": ['a="x; {}; y"'],
    "after an empty one": [";; {};;"],
}


@pytest.mark.parametrize("how", COOKIES)
def test_our_cookie_never_goes_in(script: Site, how: str) -> None:
    cookie = script.enter()
    forget(script)
    lines = [b"CooKie: " + line.format(cookie).encode() for line in COOKIES[how]]
    with raw(script) as visitor:
        visitor.ask(FINE, *lines, *lines_of(FETCHES), key=False)
        assert visitor.answer()[2] == b"fine"
    [told] = heard(script)
    assert cookie.partition("=")[2] not in told["head"] and "__host-hf" not in told["head"].lower()
    assert ("a=" in told["head"]) == ("a=" in COOKIES[how][0] + COOKIES[how][-1])


@pytest.mark.parametrize("name", ["__host-hf", "__HOST-HF", "__Host-HF"])
def test_nor_in_another_case(script: Site, name: str) -> None:
    forget(script)
    with raw(script) as visitor:
        visitor.ask(FINE, f"Cookie: a=1; {name}={SECRET}; {name} = {SECRET};{name}".encode()).answer()
    assert SECRET not in heard(script)[0]["head"] and "a=1" in heard(script)[0]["head"]


def test_two_of_our_cookies_are_none(script: Site) -> None:
    """One of them may have been put there by another page of the domain."""
    one, other = script.enter(), script.enter()
    for lines in ([f"{one}; {other}"], [one, other], [one, f"__Host-hf={SECRET}"]):
        with raw(script) as visitor:
            visitor.ask(FINE, *(f"Cookie: {line}".encode() for line in lines), *lines_of(FETCHES), key=False)
            assert visitor.answer()[0] == 401


@pytest.mark.parametrize(
    "line",
    [
        b"X-Holdfast-Anything: secret",
        b"X-HOLDFAST-: secret",
        b"Connection: x-secret\r\nX-Secret: secret",
        b"Connection: close, X-Secret\r\nx-secret: secret",
        b"Proxy-Authorization: Basic secret",
        b"Proxy-Connection: secret",
        b"Keep-Alive: secret",
        b"TE: secret",
        b"Upgrade: secret",
        b"Trailer: secret",
        b"Forwarded: for=secret",
        b"X-Forwarded-For: secret",
        b"X-Forwarded-Anything: secret",
        b"X-Real-IP: secret",
        b"Via: secret",
        b"CF-Connecting-IP: secret",
        b"True-Client-IP: secret",
    ],
)
def test_what_is_for_us_or_for_nobody_stays_out(script: Site, line: bytes) -> None:
    forget(script)
    with raw(script) as visitor:
        assert visitor.ask(FINE, line).answer()[2] == b"fine"
    assert "secret" not in heard(script)[0]["head"]


def test_connection_cannot_take_out_what_we_write(script: Site) -> None:
    """Nor have our key passed on as if it were the next hop's."""
    forget(script)
    with raw(script) as visitor:
        visitor.ask(FINE, b"Connection: x-holdfast-key, x-forwarded-host, x-forwarded-for, host, cookie").answer()
    head = heard(script)[0]["head"].lower()
    assert f"host: {script.host()}" in head and f"x-forwarded-host: {script.host()}" in head
    assert "x-forwarded-for: 127.0.0.1" in head and script.daemon.key not in head


def test_nobody_is_believed_who_was_not_named(script: Site) -> None:
    """There are no trusted proxies here: what a client says of its host changes nothing."""
    with raw(script) as visitor:
        said = b"X-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 10.0.0.1"
        assert visitor.ask(FINE, said).answer()[2] == b"fine"
    with raw(script) as visitor:
        visitor.ask(b"/", f"X-Forwarded-Host: {script.host()}".encode(), host="evil.example")
        assert visitor.answer()[0] == 421


@pytest.mark.parametrize("count", [99, 300])
def test_a_flood_of_headers(script: Site, count: int) -> None:
    with raw(script) as visitor:
        visitor.ask(FINE, *(b"X-%d: 1" % number for number in range(count)))
        assert visitor.head().startswith(b"HTTP/1.1 431 ")


def test_a_head_that_is_too_large(script: Site) -> None:
    for line in (b"X: " + b"x" * 70_000, b"Cookie: " + b"a=1; " * 20_000):
        with raw(script) as visitor:
            visitor.ask(FINE, line)
            assert visitor.head().startswith(b"HTTP/1.1 431 ")


# -- nothing of ours, and nothing for others, comes out ----------------------------------------------------------------


@pytest.mark.parametrize(
    "cookie",
    [
        b"__Host-hf=evil; Path=/; Secure",
        b"__host-HF=evil; Path=/; Secure",
        b"  __Host-hf  =evil; Path=/; Secure",
        b"=__Host-hf=evil; Path=/; Secure",
        b"\t=\t__Host-hf=evil",
        b"__Host-hf",
        b"a=evil; Domain=localhost",
        b"a=evil;DOMAIN=.localhost",
        b"a=evil; domain",
        b"a=evil; Path=/; Domain = x",
    ],
)
def test_cookies_that_reach_too_far_stay_inside(script: Site, cookie: bytes) -> None:
    with raw(script) as visitor:
        _, headers, _ = visitor.ask(target(send(whole(b"", b"Set-Cookie: " + cookie, b"Set-COOKIE: b=2")))).answer()
    assert headers["set-cookie"] == "b=2"


def test_many_cookies_come_out_or_are_too_many(script: Site) -> None:
    for count, status in ((150, 200), (250, 502)):
        with raw(script) as visitor:
            start = send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
            visitor.ask(target(start, flood(b"Set-Cookie: a=1\r\n", count), send(b"\r\n")))
            head = visitor.head()
            assert parse(head)[0] == status and head.count(b"set-cookie: a=1") == (150 if status == 200 else 0)


@pytest.mark.parametrize(
    "line",
    [
        b"Connection: x-a\r\nX-A: evil",
        b"Keep-Alive: evil",
        b"Proxy-Authenticate: evil",
        b"Upgrade: evil",
        b"Trailer: evil",
        b"Alt-Svc: evil",
        b"Clear-Site-Data: evil",
        b"X-A: 1\x7fevil",
    ],
)
def test_what_is_for_the_next_hop_stays_inside(script: Site, line: bytes) -> None:
    with raw(script) as visitor:
        head = visitor.ask(target(send(whole(b"", line)))).head()
    assert b"evil" not in head


BAD = {
    "a folded line": b"HTTP/1.1 200 OK\r\nX-A: 1\r\n Set-Cookie: evil\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed": b"HTTP/1.1 200 OK\r\nX-A: 1\nSet-Cookie: __Host-hf=evil\r\nContent-Length: 0\r\n\r\n",
    "a bare carriage return": b"HTTP/1.1 200 OK\r\nX-A: 1\rSet-Cookie: __Host-hf=evil\r\nContent-Length: 0\r\n\r\n",
    "a zero byte": b"HTTP/1.1 200 OK\r\nX-A: \0evil\r\nContent-Length: 0\r\n\r\n",
    "a name that is none": b"HTTP/1.1 200 OK\r\nX A: evil\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nevil",
    "two kinds of length": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nevil",
    "a coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nevil",
    "codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: evil\r\n\r\n",
    "a status that is none": b"HTTP/1.1 999 evil\r\nContent-Length: 0\r\n\r\n",
    "no number": b"HTTP/1.1 abc evil\r\n\r\n",
    "an upgrade nobody asked for": b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nevil",
    "an upgrade to nothing": b"HTTP/1.1 101 S\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nX-A: evil",
}


@pytest.mark.parametrize("what", BAD)
def test_answers_that_make_no_sense(script: Site, what: str) -> None:
    with raw(script) as visitor:
        status, headers, body = visitor.ask(target(send(BAD[what]))).answer()
    assert status == 502 and b"bad_answer" in body
    assert b"evil" not in body and "evil" not in str(headers)


@pytest.mark.parametrize(
    "more",
    [
        flood(b"HTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\n", 100_000),
        flood(b"HTTP/1.1 100 Continue\r\n\r\n", 100_000),
        flood(b"x", 100, 10_000),
    ],
)
def test_floods_before_an_answer_end(script: Site, more: list[object]) -> None:
    start = b"HTTP/1.1 200 OK\r\nX-A: " if more[3] == 10_000 else b""
    with raw(script) as visitor:
        began = time.monotonic()
        assert visitor.ask(target(send(start), more)).answer()[0] == 502
        assert time.monotonic() - began < 15


def test_hints_before_an_answer_are_left_out(script: Site) -> None:
    said = b"HTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + whole(b"fine")
    with raw(script) as visitor:
        status, headers, body = visitor.ask(target(send(said))).answer()
    assert (status, body) == (200, b"fine") and "link" not in headers


def test_a_second_answer_is_nobodys(script: Site) -> None:
    """Whatever a program says after its answer, and whenever, is not the answer to the next request."""
    evil = whole(b"evil", b"X-A: evil", status=b"203 Evil")
    for steps in (
        [send(whole(b"fine") + evil), ["next"]],
        [send(whole(b"fine")), ["sleep", 0.2], send(evil), ["next"]],
        [send(whole(b"fine") + evil * 200), ["next"]],
        [send(whole() + b"rubbish"), ["next"]],
    ):
        cookie = script.enter()
        with raw(script) as visitor:
            for number in range(4):
                where = target(*steps) if number == 0 else FINE
                visitor.ask(where, *lines_of(FETCHES), cookie=cookie)
                status, headers, body = visitor.answer()
                assert status == 200 and b"evil" not in body and "x-a" not in headers
                time.sleep(0.4 if number == 0 else 0)


def test_visitors_share_no_connection(script: Site) -> None:
    """What a program says to one, after his answer, cannot reach another."""
    late = target(send(whole(b"fine")), ["sleep", 0.3], send(whole(b"evil")), ["next"])
    one, other = script.enter(), script.enter()
    with raw(script) as first, raw(script) as second:
        for _ in range(3):
            assert first.ask(late, *lines_of(FETCHES), cookie=one).answer()[2] == b"fine"
            for _ in range(5):
                assert second.ask(FINE, *lines_of(FETCHES), cookie=other).answer()[2] == b"fine"
                time.sleep(0.1)


def test_a_connection_is_used_again_for_the_same_visitor(script: Site) -> None:
    cookie = script.enter()
    forget(script)
    told = base64.b64encode(whole(b"fine")).decode()
    with raw(script) as visitor:
        # The program answers the second request only if it comes on the first one's connection.
        where = target(["send", told], ["until", base64.b64encode(b"\r\n\r\n").decode()], send(whole(b"same")))
        assert visitor.ask(where, *lines_of(NAVIGATES), cookie=cookie).answer()[2] == b"fine"
        assert visitor.ask(b"/second", *lines_of(NAVIGATES), cookie=cookie).answer()[2] == b"same"
