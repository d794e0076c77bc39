"""WebSockets of the API from a page: by a ticket, once, and from no page of another host. In both browsers."""

import pytest

from support.browsers.tab import Browser, Tab, eventually, shows
from support.gateway.foreign import ForeignSite
from support.gateway.world import BrowserSite, World

TICKET = """async (key) => {
  const answer = await fetch("/v1/tickets", {method: "POST", headers: {Authorization: "Bearer " + key}});
  return (await answer.json()).ticket;
}"""
TALK = """(url, ticket, say) => new Promise((done) => {
  const socket = new WebSocket(url, ["holdfast", "ticket." + ticket]), heard = [];
  socket.binaryType = "arraybuffer";
  const end = (how) => { socket.onclose = null; socket.close(); done([how, socket.protocol, heard.join("")]); };
  socket.onmessage = async (event) => {
    heard.push(typeof event.data === "string" ? event.data : new TextDecoder().decode(event.data));
    if (say.until && heard.join("").includes(say.until)) end("heard");
  };
  socket.onopen = () => {
    for (const one of say.send || []) socket.send(one.binary ? new TextEncoder().encode(one.binary) : one.text);
    if (!say.until) end("open");
  };
  socket.onclose = (event) => done([event.wasClean ? "closed" : "refused", socket.protocol, heard.join("")]);
  setTimeout(() => end("silent"), 30000);
})"""


@pytest.fixture(scope="module", params=["local", "behind_nginx"])
def site(request: pytest.FixtureRequest) -> BrowserSite:
    world: World = request.getfixturevalue(request.param)
    return world.site()


@pytest.fixture
def page(site: BrowserSite, tab: Tab) -> Tab:
    """A page of the API's own host."""
    assert site.world is not None
    tab.goto(f"{site.world.api}/docs")
    eventually(tab, "() => document.title", "the page of docs")
    return tab


def routes(site: BrowserSite) -> dict[str, dict[str, object]]:
    """Return each WebSocket of the API: what to say there, and what to hear."""
    there = f"/v1/sessions/{site.session_id}"
    request = "GET /page HTTP/1.0\r\nHost: x\r\n\r\n"
    return {
        f"{there}/terminal?rows=20&cols=80": {"send": [{"binary": "echo typed-$((6*7))\n"}], "until": "typed-42"},
        f"{there}/ports/3000/tunnel": {"send": [{"binary": request}], "until": "inside"},
        "/v1/threads/web:tickets/ws": {"send": [{"text": "no command"}], "until": "bad_input"},
    }


def test_each_websocket_takes_a_ticket_once(site: BrowserSite, page: Tab) -> None:
    assert site.world is not None
    base = site.world.api.replace("http", "ws")
    for path, say in routes(site).items():
        ticket = page.run(TICKET, site.daemon.key)
        how, protocol, heard = page.run(TALK, base + path, ticket, say)
        assert (path, how, protocol) == (path, "heard", "holdfast"), heard
        how, _, heard = page.run(TALK, base + path, ticket, say)
        assert (path, how) == (path, "refused"), "the second use"
        how, _, heard = page.run(TALK, base + path, "made-up", say)
        assert (path, how) == (path, "refused")


def test_a_ticket_is_worthless_on_another_hosts_page(
    site: BrowserSite, page: Tab, foreign: ForeignSite, each_browser: Browser
) -> None:
    assert site.world is not None
    base = site.world.api.replace("http", "ws")
    for url in (foreign.url("evil.localhost"), foreign.url("localhost"), "a page of the sandbox"):
        elsewhere = each_browser.tab()
        elsewhere.goto(site.link(path="/page")["url"] if url.startswith("a page") else url)
        shows(elsewhere, "inside" if url.startswith("a page") else "foreign")
        for path, say in routes(site).items():
            ticket = page.run(TICKET, site.daemon.key)
            assert elsewhere.run(TALK, base + path, ticket, say)[0] == "refused", (url, path)
        elsewhere.close()


def test_no_foreign_page_gets_a_ticket(site: BrowserSite, tab: Tab, foreign: ForeignSite) -> None:
    """Even one that knows a key: nothing of the API is for other sites' scripts."""
    assert site.world is not None
    tab.goto(foreign.url("evil.localhost"))
    asks = TICKET.replace("/v1/tickets", f"{site.world.api}/v1/tickets")
    failed = tab.run(f"key => ({asks})(key).then(() => 'given', () => 'refused')", site.daemon.key)
    assert failed == "refused"
