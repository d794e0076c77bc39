"""Vite with hot reload, in both browsers: a file changes in the sandbox, and the page with it, without a reload."""

import pytest

from support.browsers.tab import Tab, eventually, shows
from support.gateway.vite import change, vite_site
from support.gateway.world import BrowserSite


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
    site.daemon.kill()
    site.daemon.start()
    eventually(tab, "() => window.same === undefined && document.querySelector('#text').textContent", "it is loaded")
    shows(tab, "before the kill")
    change(site, "after the kill")
    shows(tab, "after the kill")
