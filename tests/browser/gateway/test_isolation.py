"""What a sandbox's page can do to others, tried in both browsers: nothing, at *.localhost and at a real domain."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.browsers.tab import Browser, Tab, eventually, has_sent, shows
from support.gateway.foreign import ForeignSite
from support.gateway.world import BrowserSite, World

OTHER = 3001
CALL = """async (url, how) => {
  try {
    const answer = await fetch(url, how);
    return [answer.type, answer.status, await answer.text()];
  } catch (error) {
    return ["error", 0, ""];
  }
}"""
SOCKET = """url => new Promise((done) => {
  const socket = new WebSocket(url, ["holdfast"]);
  socket.onopen = () => { socket.close(); done("open"); };
  socket.onerror = () => done("refused");
})"""
LOOK_INTO = """url => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => {
    try { done(frame.contentDocument ? frame.contentDocument.body.innerText : "nothing to be seen"); }
    catch (error) { done("nothing to be seen"); }
  };
  frame.src = url;
  document.body.append(frame);
})"""
ATTACK = """urls => {
  for (const url of urls) {
    const image = document.createElement("img");
    image.src = url + "/hostile-image";
    const script = document.createElement("script");
    script.src = url + "/hostile-script";
    const style = document.createElement("link");
    style.rel = "stylesheet"; style.href = url + "/hostile-style";
    document.body.append(image, script, style);
    fetch(url + "/hostile-fetch", {mode: "no-cors", credentials: "include"}).catch(() => 0);
    fetch(url + "/hostile-post", {method: "POST", mode: "no-cors", credentials: "include", body: "x"}).catch(() => 0);
    navigator.sendBeacon(url + "/hostile-beacon", "x");
    new WebSocket(url.replace("http", "ws") + "/hostile-socket");
    new EventSource(url + "/hostile-events", {withCredentials: true});
    const frame = document.createElement("iframe");
    frame.name = "f" + Math.random();
    const form = document.createElement("form");
    form.method = "post"; form.action = url + "/hostile-form"; form.target = frame.name;
    document.body.append(frame, form);
    form.submit();
    const top = document.createElement("form");
    top.method = "post"; top.action = url + "/hostile-form-in-a-tab"; top.target = "_blank";
    document.body.append(top);
    top.submit();
  }
}"""


@dataclass(frozen=True)
class Neighbours:
    """Two sessions, the first with a second port; one person visits them all."""

    world: World
    one: BrowserSite
    two: BrowserSite

    @property
    def api(self) -> list[str]:
        """Where the API is, by its names."""
        names = [f"localhost:{self.port}", f"127.0.0.1:{self.port}", f"holdfast.localhost:{self.port}"]
        return [f"http://{name}" for name in names] + ([self.world.api] if self.world.rewrites else [])

    @property
    def port(self) -> str:
        return self.world.daemon.url.rpartition(":")[2]


def neighbours(world: World) -> Neighbours:
    one, two = world.site(), world.site()
    one.serve(OTHER)
    return Neighbours(world, one, two)


@pytest.fixture(scope="module", params=["local", "behind_caddy"])
def there(request: pytest.FixtureRequest) -> Neighbours:
    return neighbours(request.getfixturevalue(request.param))


@pytest.fixture
def page(there: Neighbours, each_browser: Browser) -> Iterator[Tab]:
    """A page of the first session, of a visitor who is in everywhere."""
    tab = each_browser.tab()
    for site, label in ((there.two, 3000), (there.one, OTHER), (there.one, 3000)):
        tab.goto(site.link(label, path="/")["url"])
        shows(tab, "hello from inside")
    yield tab
    tab.close()


def test_other_sessions_ports_and_the_api_are_out_of_reach(there: Neighbours, page: Tab) -> None:
    elsewhere = [there.two.origin(), there.one.origin(OTHER)]
    for url in [*elsewhere, *there.api]:
        path = "/page" if url in elsewhere else "/healthz"
        for how in ({}, {"credentials": "include"}, {"headers": {"Authorization": "Bearer x"}}, {"method": "PUT"}):
            assert page.run(CALL, url + path, how) == ["error", 0, ""], (url, how)
        kind, status, text = page.run(CALL, url + path, {"mode": "no-cors", "credentials": "include"})
        assert (kind in ("opaque", "error"), status, text) == (True, 0, ""), (url, "nothing of it is readable")
        assert page.run(LOOK_INTO, url + path) == "nothing to be seen", url
    for url in elsewhere:
        assert page.run(SOCKET, url.replace("http", "ws") + "/ws") == "refused", url
    for url in there.api:
        there_is = f"/v1/sessions/{there.one.session_id}/terminal"
        assert page.run(SOCKET, url.replace("http", "ws") + there_is) == "refused", url
    assert page.run(SOCKET, there.one.origin().replace("http", "ws") + "/ws") == "open", "its own works"


@pytest.mark.parametrize("hostile", ["a sandbox", "another port", "a foreign site"])
def test_a_hostile_page_does_nothing_with_a_visitors_cookie(
    there: Neighbours, page: Tab, foreign: ForeignSite, hostile: str
) -> None:
    """Form, image, script, beacon, WebSocket: none of them reaches the program."""
    urls = [there.two.origin()]
    if hostile == "another port":
        page.goto(f"{there.one.origin(OTHER)}/")
        urls = [there.one.origin()]
    elif hostile == "a foreign site":
        page.goto(foreign.url("evil.localhost"))
    victim = there.one if hostile == "another port" else there.two
    before = len(victim.seen())
    page.run(ATTACK, urls)
    sent = {f"{urls[0]}/hostile-{what}" for what in ("image", "script", "style", "post", "form")}
    has_sent(page, sent)
    page.goto(f"{victim.origin()}/page")  # as a visitor: by now what was sent before has been answered
    shows(page, "inside")
    asked = [path for _, path in victim.seen()[before:]]
    assert not [path for path in asked if "hostile" in path]
    assert "/page" in asked


def test_cookies_do_not_reach_others(there: Neighbours, page: Tab) -> None:
    """A domain that is no public suffix lets its pages set cookies for each other, but not ours."""
    domain = there.world.domain.partition(":")[0]
    page.goto(f"{there.one.origin()}/toss?__Host-hf&{domain}")
    page.run(
        """domain => {
          document.cookie = "__Host-hf=evil; Path=/; Secure";
          document.cookie = "__Host-hf=evil; Path=/; Secure; Domain=" + domain;
          document.cookie = "__host-HF=evil; Path=/; Secure; Domain=" + domain;
          document.cookie = "by_script=evil; Path=/; Domain=" + domain;
        }""",
        domain,
    )
    mine = [cookie for cookie in page.cookies() if cookie["name"] == "__Host-hf"]
    assert len(mine) == 3 and all(cookie["httpOnly"] for cookie in mine), "three visits, and nothing else"
    for site, label in ((there.two, 3000), (there.one, OTHER), (there.one, 3000)):
        page.goto(f"{site.origin(label)}/page")
        shows(page, "inside")
    assert "tossed" not in [cookie["name"] for cookie in page.cookies()], "the gateway lets no such cookie out"
    if not there.world.rewrites:  # each is a site of its own
        page.goto(f"{there.two.origin()}/page")
        assert page.run("() => document.cookie") == ""


def test_no_cookie_is_ever_of_localhost(there: Neighbours, page: Tab) -> None:
    """Cookies know no ports: one of 127.0.0.1 would go to whatever `holdfast forward` opens there."""
    for url in there.api:
        page.goto(f"{url}/docs")
        page.goto(f"{url}/v1/sessions")
    hosts = {cookie["domain"].lstrip(".") for cookie in page.cookies()}
    assert hosts == {
        site.host(label).partition(":")[0] for site in (there.one, there.two) for label in (3000, OTHER)
    } - {there.two.host(OTHER).partition(":")[0]}


def test_a_service_worker_sees_its_own_host_only(there: Neighbours, page: Tab) -> None:
    page.run('async () => { await navigator.serviceWorker.register("/worker", {scope: "/"}); }')
    eventually(page, "() => navigator.serviceWorker.controller !== null", "the worker has taken over")
    page.goto(f"{there.one.origin()}/page")
    shows(page, "PWNED by")
    for site, label in ((there.two, 3000), (there.one, OTHER)):
        page.goto(f"{site.origin(label)}/page")
        shows(page, "inside")
    for url in there.api:
        page.goto(f"{url}/docs")
        eventually(page, "() => document.title.includes('Holdfast')", "the page of docs")
        assert "PWNED" not in page.run("() => document.body.innerText")
        assert page.run("async () => (await (await fetch('/healthz')).text()).includes('PWNED')") is False


def test_a_name_that_is_made_to_point_here_reaches_nothing(there: Neighbours, page: Tab) -> None:
    for path in ("/healthz", "/v1/sessions", "/docs"):
        page.goto(f"http://evil.example:{there.port}{path}")
        status = page.run("path => fetch(path).then((answer) => answer.status)", path)
        assert status == 421
    assert page.run(SOCKET, f"ws://evil.example:{there.port}/v1/sessions/{there.one.session_id}/terminal") == "refused"
