"""Vite with hot reload, in both browsers: a file changes in the sandbox, and the page with it, without a reload."""

import re

import pytest

from support.browsers.tab import Tab, eventually, shows
from support.gateway.vite import change, vite_site
from support.gateway.world import BrowserSite
from support.waiting import wait_for


@pytest.fixture(scope="module", params=["local", "behind_nginx"])
def site(request: pytest.FixtureRequest) -> BrowserSite:
    return vite_site(request.getfixturevalue(request.param))


def test_a_file_changes_and_the_page_with_it(site: BrowserSite, tab: Tab) -> None:
    change(site, "before")
    tab.goto(site.link(path="/")["url"])
    shows(tab, "before")
    tab.run("() => { document.querySelector('#typed').value = 'what a person has typed'; window.same = 1; }")
    for text in ("after", "and once more"):
        change(site, text)
        shows(tab, text)
    assert tab.run("() => [document.querySelector('#typed').value, window.same]") == ["what a person has typed", 1]
    assert tab.problems == []


def test_it_finds_its_way_back_after_the_daemon_was_killed(site: BrowserSite, tab: Tab) -> None:
    """Vite's own page waits for its server, and then loads itself again: the visit is still good."""
    change(site, "before the kill")
    tab.goto(site.link(path="/")["url"])
    shows(tab, "before the kill")
    tab.run("() => { window.same = 1; }")
    change(site, "it is connected")  # a page of Vite that never was does not try again
    shows(tab, "it is connected")
    site.daemon.kill()
    site.daemon.start()
    eventually(tab, "() => window.same === undefined && document.querySelector('#text')?.textContent", "it is loaded")
    shows(tab, "it is connected")
    change(site, "after the kill")
    shows(tab, "after the kill")


def test_a_page_of_vite_that_is_forgotten_lets_the_session_sleep(site: BrowserSite, tab: Tab) -> None:
    """It asks for its server every second, for as long as it is open. One click, and it goes on."""
    change(site, "before the sleep")
    tab.goto(site.link(path="/")["url"])
    shows(tab, "before the sleep")
    change(site, "it is connected")
    shows(tab, "it is connected")
    before = refused(site)
    assert site.api("POST", "/pause").status_code == 200
    wait_for(lambda: refused(site) >= before + 5, "it was refused again and again")
    assert site.api("GET", "").json()["status"] == "paused"
    tab.goto(f"{site.origin()}/")
    shows(tab, "it is connected")
    change(site, "after the sleep")
    shows(tab, "after the sleep")


def refused(site: BrowserSite) -> float:
    """Return how often somebody was told that the session is asleep."""
    with site.daemon.client() as client:
        found = re.findall(r'^holdfast_gateway_refused_total\{code="asleep"\} (\S+)', client.get("/metrics").text, re.M)
    return sum(map(float, found))
