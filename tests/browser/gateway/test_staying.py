"""A page that stays open while the daemon dies, the session sleeps, or its link is revoked. In both browsers."""

import time
from collections.abc import Iterator

import httpx2
import pytest

from support.browsers.tab import Tab, eventually, shows
from support.gateway.world import BrowserSite, World, local_world
from support.machine.machine import HeldRuntime
from support.waiting import wait_for

REFUSED = 20
"""How often a forgotten page tries again while the session sleeps."""
DOWNLOAD = """async () => {
  const answer = await fetch("/big?4000000000");
  const reader = answer.body.getReader();
  await reader.read();
  window.download = "under way";
  (async () => {
    try { for (;;) { if ((await reader.read()).done) { window.download = "done"; return; } } }
    catch (error) { window.download = "broken off"; }
  })();
}"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> HeldRuntime:
    return HeldRuntime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def local(runtime: HeldRuntime) -> Iterator[World]:
    with local_world(runtime=str(runtime.path)) as world:
        yield world


@pytest.fixture(scope="module")
def site(local: World) -> BrowserSite:
    return local.site()


@pytest.fixture
def live(site: BrowserSite, tab: Tab) -> Tab:
    """A page with an open WebSocket, which it opens again whenever it ends."""
    tab.goto(site.link(path="/live")["url"])
    eventually(tab, "() => window.opened === 1", "its WebSocket is open")
    return tab


def status(site: BrowserSite) -> str:
    return str(site.api("GET", "").json()["status"])


def sleep(site: BrowserSite, how: str) -> None:
    answer = site.api("POST", f"/{how}")
    assert answer.status_code in (200, 202), answer.text
    wait_for(lambda: status(site) == "paused", "the session sleeps")


def test_it_recovers_by_itself_from_a_kill_of_the_daemon(site: BrowserSite, live: Tab) -> None:
    live.run(DOWNLOAD)
    eventually(live, "() => window.download === 'under way'", "the download is under way")
    site.daemon.kill()
    eventually(live, "() => window.download === 'broken off'", "the page is told that its download broke off")
    eventually(live, "() => window.refused > 0", "nobody is there")
    site.daemon.start()
    eventually(live, "() => window.opened === 2", "its WebSocket is open again")
    live.run("() => window.socket.send('still here')")
    eventually(live, "() => window.heard.includes('still here')", "frames go through")
    assert live.run("async () => (await fetch('/page')).status") == 200, "the visit is still good"


def test_a_forgotten_page_does_not_wake_a_session_but_one_click_does(site: BrowserSite, live: Tab) -> None:
    sleep(site, "pause")
    began = live.run("() => window.refused")
    eventually(live, "began => window.refused >= began", "it tries again and again", began + REFUSED)
    asked = live.run(
        """async () => {
          const answer = await fetch("/page");
          return [answer.status, (await answer.json()).error.code, answer.headers.get("retry-after")];
        }"""
    )
    assert asked == [503, "asleep", "1"]
    assert live.run("() => window.opened") == 1
    assert status(site) == "paused", f"after {REFUSED} attempts it sleeps on"
    live.run("() => { document.body.innerHTML = '<a id=go href=/page>go</a>'; }")
    live.click("#go")
    shows(live, "inside")
    assert status(site) == "active"


def test_a_session_without_memory_wakes_by_a_click_too(site: BrowserSite, live: Tab) -> None:
    """Its programs have ended with `sleep --files`: the page says so, and shows theirs when one listens again."""
    sleep(site, "hibernate")
    live.goto(f"{site.origin()}/page")
    shows(live, "Nothing is running here yet")
    assert status(site) == "active"
    site.serve()
    live.reload()
    shows(live, "inside")


def test_a_page_waits_for_a_session_that_takes_its_time(site: BrowserSite, live: Tab, runtime: HeldRuntime) -> None:
    sleep(site, "hibernate")
    runtime.hold("run", "before")
    live.goto(f"{site.origin()}/page?and=this#too")
    shows(live, "Waking the sandbox")
    runtime.wait_held("run", "before")
    runtime.release("run", "before")
    shows(live, "Nothing is running here yet")  # by itself
    assert live.run("() => location.href") == f"{site.origin()}/page?and=this#too"
    site.serve()


def test_it_is_hung_up_on_when_its_link_is_revoked(site: BrowserSite, tab: Tab) -> None:
    link = site.link(path="/live")
    tab.goto(link["url"])
    eventually(tab, "() => window.opened === 1", "its WebSocket is open")
    began = time.monotonic()
    assert site.api("DELETE", f"/links/{link['id']}").status_code == 204
    eventually(tab, "() => window.ended", "its WebSocket has ended", seconds=20)
    assert time.monotonic() - began <= 5
    eventually(tab, "() => window.refused > 2", "it is not let in again")
    assert tab.run("() => window.opened") == 1
    tab.reload()
    shows(tab, "You need a link to come in")


def test_it_is_hung_up_on_when_its_session_is_gone(local: World, tab: Tab) -> None:
    site = local.site()
    tab.goto(site.link(path="/live")["url"])
    eventually(tab, "() => window.opened === 1", "its WebSocket is open")
    site.api("DELETE", "")
    began = time.monotonic()
    eventually(tab, "() => window.ended", "its WebSocket has ended", seconds=20)
    assert time.monotonic() - began <= 5
    tab.reload()
    eventually(tab, "() => document.title.length > 0 && window.opened === undefined", "a page of ours")
    assert httpx2.get(f"{site.daemon.url}/healthz", trust_env=False).status_code == 200
