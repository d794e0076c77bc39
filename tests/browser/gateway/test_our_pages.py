"""The gateway's own pages in both browsers: they fit, break no rule of their own policy, and repeat nothing."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway.pages import ENTER, PROBLEMS, STARTING, WAITING, problem
from support.browsers.tab import Browser, Tab, eventually, hosts_asked, shows
from support.gateway.world import BrowserSite, World

PAGES = {"enter": ENTER, "waiting": WAITING, "starting": STARTING, **PROBLEMS, "other": problem("another")}
PICTURES = os.environ.get("TEST_PICTURES")
"""A folder for pictures of all pages, for whoever wants to look at them."""
EVIL = [
    "/<script>window.pwned=1</script>",
    "/%3Cscript%3Ewindow.pwned=1%3C/script%3E?a=<img src=x onerror=window.pwned=1>",
    "/?token=<script>window.pwned=1</script>.x.y",
    "/%22%3E%3Cimg%20src=x%20onerror=window.pwned=1%3E#<img src=x onerror=window.pwned=1>",
    "/.holdfast/%3Cscript%3Ewindow.pwned=1%3C/script%3E",
    '/.holdfast/enter?x=<script>window.pwned=1</script>#ticket="><img src=x onerror=window.pwned=1>',
    "/.holdfast/enter#ticket=x&next=javascript:window.pwned=1",
    "/.holdfast/enter#ticket=<script>window.pwned=1</script>&next=//evil.example/",
]

AT_REST = """() => document.querySelector("h1")
  && (document.title !== "Opening the sandbox" || document.body.innerText.includes("only the door"))"""
"""The page that hands a link in is there for a moment only; it holds the ticket in its form."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path.strip("/"))
        self.send_response(404 if page is None else 200)
        for name, value in page.headers if page is not None else ():
            self.send_header(name.decode(), value.decode())
        self.end_headers()
        self.wfile.write(page.body if page is not None else b"")

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://pages.localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="module")
def site(local: World) -> BrowserSite:
    return local.site()


@pytest.mark.parametrize("width", [1280, 320])
def test_they_are_whole_and_keep_to_their_policy(address: str, each_browser: Browser, width: int) -> None:
    look_at_all(address, each_browser, width, dark=False)


def test_they_are_whole_in_the_dark(address: str, chromium: Browser) -> None:
    look_at_all(address, chromium, 1280, dark=True)


def look_at_all(address: str, browser: Browser, width: int, *, dark: bool) -> None:
    tab = browser.tab(width=width, dark=dark)
    for name in PAGES:
        tab.goto(f"{address}/{name}")
        look = tab.run(
            """() => {
              const title = document.querySelector("h1"), main = document.querySelector("main").getBoundingClientRect();
              return {
                title: title.innerText,
                wide: document.documentElement.scrollWidth > innerWidth,
                inside: main.left >= 0 && main.top >= 0 && main.right <= innerWidth + 1,
                styled: parseFloat(getComputedStyle(title).fontSize) < 30,
                lang: document.documentElement.lang,
              };
            }"""
        )
        assert look["title"] and not look["wide"], name
        assert (look["inside"], look["styled"], look["lang"]) == (True, True, "en"), name
        if PICTURES:
            kind = f"{browser.name}-{width}{'-dark' if dark else ''}"
            tab.screenshot(Path(PICTURES) / f"{name}-{kind}.png")
    assert tab.problems == []
    assert hosts_asked(tab) == {address.removeprefix("http://")}, "nothing else is asked for"
    tab.close()


def test_nothing_that_is_sent_appears_in_them(site: BrowserSite, tab: Tab, open_tab: Any) -> None:
    visitor = open_tab()
    visitor.goto(site.link(3999, path="/")["url"])
    shows(visitor, "Nothing is running here yet")
    for one, label in ((tab, 3000), (visitor, 3999)):
        for path in EVIL:
            one.goto(site.origin(label) + path)
            eventually(one, AT_REST, "the link was handed in")
            assert one.run("() => [window.pwned === undefined, location.host]") == [True, site.host(label)], path
            found = one.run("() => document.documentElement.outerHTML + document.title")
            assert "pwned" not in found and "evil.example" not in found, path
        assert hosts_asked(one) <= {site.host(3000), site.host(3999)}


@pytest.mark.parametrize("name", ["<script>.localhost", "3000--ses-x.localhost", "x.localhost", "a--ses-b.localhost"])
def test_a_name_that_is_none_of_ours_is_not_repeated(site: BrowserSite, name: str) -> None:
    answer = site.ask("/<script>", host=name)
    assert answer.status_code in (400, 421) and "script" not in answer.text and name not in answer.text
