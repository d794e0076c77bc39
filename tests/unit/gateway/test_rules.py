"""For which requests a cookie is good: those of the same host's pages, and going to a page."""

import pytest

from holdfast.errors import Forbidden
from holdfast.gateway.rules import asked, check_origin

OWN = "http://3000--ses-x.localhost:8080"
OTHER_PORT = "http://3001--ses-x.localhost:8080"


def check(method: str = "GET", *, websocket: bool = False, **headers: str) -> None:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    check_origin(asked(method, OWN, pairs, is_websocket=websocket))


@pytest.mark.parametrize("site", ["same-origin", "none"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_the_hosts_own_pages_may(site: str, method: str) -> None:
    check(method, sec_fetch_site=site)
    check(method, sec_fetch_site=site, origin=OWN)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_pages_of_others_may_not(site: str, method: str) -> None:
    with pytest.raises(Forbidden):
        check(method, sec_fetch_site=site, sec_fetch_mode="cors", sec_fetch_dest="empty")
    with pytest.raises(Forbidden):
        check(method, sec_fetch_site=site, sec_fetch_mode="no-cors", sec_fetch_dest="image")


@pytest.mark.parametrize("dest", ["document", "iframe", "frame"])
def test_going_to_a_page_is_good_from_anywhere(dest: str) -> None:
    check(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest=dest)


def test_a_form_of_another_page_is_not() -> None:
    with pytest.raises(Forbidden):
        check("POST", sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest="document")
    for origin in (OTHER_PORT, "null"):
        with pytest.raises(Forbidden):
            check(
                "POST",
                sec_fetch_site="cross-site",
                sec_fetch_mode="navigate",
                sec_fetch_dest="document",
                origin=origin,
            )


@pytest.mark.parametrize("dest", ["object", "embed", "image", "script"])
def test_a_thing_in_a_foreign_page_is_not_a_page(dest: str) -> None:
    with pytest.raises(Forbidden):
        check(sec_fetch_site="cross-site", sec_fetch_mode="navigate", sec_fetch_dest=dest)


@pytest.mark.parametrize(
    "origin", [OTHER_PORT, "null", "http://evil.example", OWN + ".evil", OWN.replace("8080", "80")]
)
def test_a_foreign_origin_is_refused_whatever_else_is_said(origin: str) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(Forbidden):
            check(method, origin=origin)
        with pytest.raises(Forbidden):
            check(method, origin=origin, sec_fetch_site="same-origin")
    with pytest.raises(Forbidden):
        check(websocket=True, origin=origin)


def test_an_old_browser_says_its_origin_when_it_changes_something() -> None:
    check("GET")
    check("POST", origin=OWN)
    with pytest.raises(Forbidden):
        check("POST")


def test_a_websocket_must_say_where_it_comes_from() -> None:
    check(websocket=True, origin=OWN)
    check(websocket=True, origin=OWN.upper())
    with pytest.raises(Forbidden):
        check(websocket=True)
    with pytest.raises(Forbidden):  # Chromium sends no Sec-Fetch-Site with one, and anybody could
        check(websocket=True, sec_fetch_site="same-origin")


@pytest.mark.parametrize(
    ("method", "headers", "is_one"),
    [
        ("GET", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ("GET", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, True),
        ("POST", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, False),
        ("GET", {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty", "accept": "text/html"}, False),
        ("GET", {"accept": "text/html,*/*"}, True),
        ("GET", {"accept": "*/*"}, False),
        ("GET", {}, False),
    ],
)
def test_what_a_navigation_is(method: str, headers: dict[str, str], is_one: bool) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert asked(method, OWN, pairs).is_navigation is is_one
    assert not asked(method, OWN, pairs, is_websocket=True).is_navigation


@pytest.mark.parametrize("name", [b"origin", b"x-holdfast-key", b"sec-fetch-site", b"sec-fetch-mode", b"authorization"])
def test_what_says_who_asks_may_come_once(name: bytes) -> None:
    assert asked("GET", OWN, [(name, b"1"), (b"a", b"1"), (name, b"1")]).is_ambiguous
    assert not asked("GET", OWN, [(name, b"1"), (b"a", b"1"), (b"a", b"1")]).is_ambiguous


def test_all_cookie_headers_are_looked_at() -> None:
    found = asked("GET", OWN, [(b"cookie", b"a=1"), (b"cookie", b"b=2")])
    assert list(found.cookies) == [(b"cookie", b"a=1"), (b"cookie", b"b=2")] and not found.is_ambiguous
