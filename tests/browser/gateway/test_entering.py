"""A link in a tab and in a frame, as people use them, in both browsers, at *.localhost and behind real proxies."""

import time
from typing import Any

import jwt
import pytest

from support.browsers.tab import Tab, eventually, hosts_asked, shows
from support.gateway.foreign import ForeignSite
from support.gateway.world import API, BrowserSite

COOKIE = "__Host-hf"
EMBED = """url => {
  const frame = document.createElement("iframe");
  frame.src = url;
  document.body.append(frame);
}"""
EVERYTHING = """async () => {
  const got = await (await fetch("/some?a=1", {headers: {"X-Mine": "1"}})).json();
  const posted = await (await fetch("/some", {method: "POST", body: "x".repeat(100000)})).json();
  const events = await new Promise((done, failed) => {
    const source = new EventSource("/events?3"), heard = [];
    source.onmessage = (event) => { if (heard.push(event.data) === 3) { source.close(); done(heard); } };
    source.onerror = failed;
  });
  const echoed = await new Promise((done, failed) => {
    const socket = new WebSocket(location.origin.replace("http", "ws") + "/ws", ["one", "two"]), heard = [];
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { socket.send("grüße"); socket.send(new Uint8Array([0, 255])); };
    socket.onmessage = (event) => {
      heard.push(typeof event.data === "string" ? event.data : [...new Uint8Array(event.data)]);
      if (heard.length === 2) socket.send("close me");
    };
    socket.onclose = (event) => done([socket.protocol, event.code, ...heard]);
  });
  return {path: got.path, size: posted.size, events, echoed, cookie: document.cookie};
}"""


@pytest.fixture(scope="module", params=["local", "behind_nginx", "behind_caddy"])
def site(request: pytest.FixtureRequest) -> BrowserSite:
    made: BrowserSite = request.getfixturevalue(request.param).site()
    return made


def our_cookie(tab: Tab) -> dict[str, Any]:
    [found] = [one for one in tab.cookies() if one["name"] == COOKIE]
    return found


def works(page: Tab) -> None:
    done = page.run(EVERYTHING)
    assert (done["path"], done["size"], done["events"]) == ("/some?a=1", 100000, ["0", "1", "2"])
    assert done["echoed"] == ["one", 4321, "grüße", [0, 255]]
    assert COOKIE not in done["cookie"], "no script sees it"


def test_a_link_in_a_tab(site: BrowserSite, tab: Tab) -> None:
    tab.goto(site.link(path="/page?x=1#part")["url"])
    eventually(tab, "() => location.pathname === '/page'", "the link leads to its page")
    assert tab.run("() => location.href") == f"{site.origin()}/page?x=1#part"
    assert tab.run("() => history.length") <= 2, "one step back is not the door"
    cookie = our_cookie(tab)
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Lax")
    assert (cookie["path"], cookie["domain"]) == ("/", site.host().partition(":")[0]), "of this host alone"
    tab.reload()
    shows(tab, "inside")
    works(tab)
    assert tab.problems == []
    assert hosts_asked(tab) == {site.host()}


def test_the_second_use_of_a_link_is_told_plainly(site: BrowserSite, tab: Tab, open_tab: Any) -> None:
    link = site.link(path="/page")["url"]
    tab.goto(link)
    shows(tab, "inside")
    stranger = open_tab()
    stranger.goto(link)
    shows(stranger, "This link is no longer good")
    assert stranger.run("() => document.documentElement.outerHTML").count(link.partition("ticket=")[2][:20]) == 0
    assert COOKIE not in [cookie["name"] for cookie in stranger.cookies()]
    tab.goto(link)  # whoever is in already just goes on
    shows(tab, "inside")


def test_who_has_no_link_is_told_how_to_get_one(site: BrowserSite, tab: Tab) -> None:
    tab.goto(f"{site.origin()}/page")
    shows(tab, "You need a link to come in")
    tab.goto(f"{site.origin()}/.holdfast/enter")
    shows(tab, "only the door")


@pytest.mark.parametrize("outer", ["outer.localhost", "holdfast.localhost", API])
def test_a_link_in_a_frame_of_another_site(site: BrowserSite, tab: Tab, foreign: ForeignSite, outer: str) -> None:
    """Its cookie is the frame's alone: it is not sent when the same page is in a tab."""
    tab.goto(foreign.url(outer))
    tab.run(EMBED, site.link(path="/page")["url"])
    frame = tab.frame(site.host())
    shows(frame, "inside")
    cookie = our_cookie(tab)
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "None")
    works(frame)
    frame.run("() => location.reload()")
    shows(frame, "inside")
    assert tab.problems == []
    tab.goto(f"{site.origin()}/page")
    shows(tab, "You need a link to come in")


def test_a_visit_in_a_tab_is_no_visit_in_a_frame(site: BrowserSite, tab: Tab, foreign: ForeignSite) -> None:
    """Else any page could show what a visitor sees, and catch clicks there."""
    tab.goto(site.link(path="/page")["url"])
    shows(tab, "inside")
    tab.goto(foreign.url("evil.localhost"))
    tab.run(EMBED, f"{site.origin()}/page")
    shows(tab.frame(site.host()), "You need a link to come in")


def test_two_people_at_once_have_visits_of_their_own(site: BrowserSite, open_tab: Any) -> None:
    one, two = open_tab(), open_tab()
    for tab in (one, two):
        tab.goto(site.link(path="/page")["url"])
    for tab in (one, two):
        shows(tab, "inside")
    assert our_cookie(one)["value"] != our_cookie(two)["value"]


def test_a_signed_token_leaves_the_address_bar_at_once(site: BrowserSite, tab: Tab) -> None:
    secret = site.api("GET", "/gateway-secret").json()["secret"]
    claims = {"sub": "ada", "sid": site.session_id, "exp": int(time.time()) + 60}
    tab.goto(f"{site.origin()}/page?a=1&token={jwt.encode(claims, secret, algorithm='HS256')}")
    shows(tab, "inside")
    assert tab.run("() => location.search") == "?a=1"
    assert our_cookie(tab)["sameSite"] == "Lax"
