"""What goes in and what comes out: nothing of ours inside, nothing for other hosts outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadRequest
from holdfast.gateway.proxy.headers import Header, cookie_in, inward, outward


def inside(*headers: Header) -> dict[bytes, bytes]:
    return dict(inward(headers, host=b"h", asked_host=b"asked", scheme="https", peer="10.0.0.9"))


def outside(*headers: Header, is_ours: bool = False) -> list[Header]:
    return outward(headers, is_ours=is_ours)


def test_our_cookie_stays_out_and_others_go_in() -> None:
    assert inside((b"cookie", b"a=1; __Host-hf=secret; b=2"))[b"cookie"] == b"a=1; b=2"
    assert b"cookie" not in inside((b"cookie", b"__host-HF=secret"))
    assert inside((b"cookie", b"x__Host-hf=1"))[b"cookie"] == b"x__Host-hf=1"


@pytest.mark.parametrize("name", [b"X-Holdfast-Key", b"x-holdfast-anything", b"X-HOLDFAST-KEY"])
def test_our_headers_stay_out(name: bytes) -> None:
    assert name.lower() not in inside((name, b"secret"))


def test_what_a_client_says_of_its_way_stays_out() -> None:
    said = inside(
        (b"x-forwarded-for", b"6.6.6.6"),
        (b"forwarded", b"for=6.6.6.6"),
        (b"x-forwarded-host", b"evil"),
        (b"host", b"e"),
    )
    assert said[b"host"] == b"h"
    assert said[b"x-forwarded-host"] == b"asked"
    assert said[b"x-forwarded-proto"] == b"https"
    assert said[b"x-forwarded-for"] == b"10.0.0.9"
    assert b"forwarded" not in said


def test_headers_of_one_hop_stay_there() -> None:
    """Also when ``Connection`` names one of ours, or one that the program should see."""
    said = inside((b"connection", b"close, X-Secret"), (b"x-secret", b"1"), (b"te", b"trailers"), (b"keep-alive", b"5"))
    assert set(said) == {b"host", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-for"}
    assert b"authorization" in inside((b"authorization", b"Bearer theirs")), "it is the program's own"


def test_framing_is_not_copied() -> None:
    said = inside((b"content-length", b"5"), (b"transfer-encoding", b"chunked"))
    assert b"content-length" not in said and b"transfer-encoding" not in said


@pytest.mark.parametrize(
    "header", [(b"a b", b"1"), (b"", b"1"), (b"a:", b"1"), (b"a", b"1\r\nx: y"), (b"a", b"1\n"), (b"a", b"\0")]
)
def test_what_would_split_the_head_is_refused(header: Header) -> None:
    with pytest.raises(BadRequest):
        inside(header)


@pytest.mark.parametrize(
    "cookie",
    [
        b"__Host-hf=evil; Path=/; Secure",
        b"__host-HF=evil",
        b" __Host-hf =evil",
        b"a=1; Domain=localhost",
        b"a=1; path=/;domain = .example.net",
        b"a=1;DOMAIN",
        b"=__Host-hf=evil; Path=/; Secure",
        b"\t= __Host-hf=evil",
    ],
)
def test_cookies_that_reach_too_far_stay_inside(cookie: bytes) -> None:
    assert outside((b"Set-Cookie", cookie)) == [(b"referrer-policy", b"strict-origin")]


@pytest.mark.parametrize(
    "header", [(b"X A", b"1"), (b"X-A", b"1\x7f"), (b"X-A", b"1\x0b"), (b"", b"1"), (b"X-A", b"1\r\n")]
)
def test_what_cannot_be_sent_stays_inside(header: Header) -> None:
    assert outside(header) == [(b"referrer-policy", b"strict-origin")]


def test_other_cookies_go_out() -> None:
    assert (b"set-cookie", b"a=domain; Path=/") in outside((b"Set-Cookie", b"a=domain; Path=/"))


def test_what_reaches_beyond_the_host_stays_inside() -> None:
    kept = outside((b"Clear-Site-Data", b'"*"'), (b"Alt-Svc", b"h3"), (b"Connection", b"x-a"), (b"X-A", b"1"))
    assert kept == [(b"referrer-policy", b"strict-origin")]


def test_a_services_worker_does_not_take_the_whole_host() -> None:
    header = (b"Service-Worker-Allowed", b"/")
    assert (b"service-worker-allowed", b"/") in outside(header)
    assert (b"service-worker-allowed", b"/") not in outside(header, is_ours=True)


def test_a_policy_of_the_programs_own_stays() -> None:
    assert outside((b"Referrer-Policy", b"no-referrer")) == [(b"referrer-policy", b"no-referrer")]


def test_two_cookies_of_ours_are_none() -> None:
    assert cookie_in([(b"cookie", b"__Host-hf=one")]) == "one"
    assert cookie_in([(b"cookie", b"a=1; __Host-hf=one; b=2")]) == "one"
    assert cookie_in([(b"cookie", b"__Host-hf=one; __Host-hf=two")]) is None
    assert cookie_in([(b"cookie", b"__Host-hf=one"), (b"cookie", b"__Host-hf=two")]) is None
    assert cookie_in([]) is None


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=30)), max_size=8))
def test_whatever_is_sent_gives_one_head(headers: list[Header]) -> None:
    try:
        sent = inward(headers, host=b"h", asked_host=b"a", scheme="http", peer=None)
    except BadRequest:
        return
    assert all(b"\r" not in value and b"\n" not in value and b"\0" not in name + value for name, value in sent)
    assert [value for name, value in sent if name == b"host"] == [b"h"]
