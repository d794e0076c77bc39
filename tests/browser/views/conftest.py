"""A session whose terminal and desktop are opened in a real browser."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, expect

from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.visitor import Site

EXPECTED = ("Failed to load resource", "WebSocket connection to")
"""What browsers say of an answer that is an error, and of a daemon that is away."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with ThreadPoolExecutor(1) as thread:  # Playwright may have its loop in this one
        reason = thread.submit(unusable_driver).result()
    if reason:
        pytest.skip(reason)
    with DaemonProcess() as process:
        process.keep_port()
        yield process


def new_site(daemon: DaemonProcess, **body: object) -> Site:
    with daemon.client() as client:
        made = client.post("/v1/sessions", json=body)
        assert made.status_code == 201, made.text
        return Site(daemon, made.json()["id"])


@pytest.fixture
def site(daemon: DaemonProcess) -> Iterator[Site]:
    site = new_site(daemon)
    yield site
    assert site.api("DELETE", "").status_code in (200, 202, 204, 404)


class Visit(Protocol):
    def __call__(self, label: str, *, url: str | None = None, context: BrowserContext | None = None) -> Page: ...


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """Open a view by a link of its own. At the end nothing has gone wrong in its script, and nothing was asked of
    another host."""
    problems: list[str] = []
    contexts: list[BrowserContext] = []

    def heard(said: ConsoleMessage) -> None:
        if said.type == "error" and not said.text.startswith(EXPECTED):
            problems.append(said.text)

    def failed(error: Error) -> None:
        problems.append(f"script: {error}")

    def watch(label: str) -> Callable[[Request], None]:
        port = site.daemon.url.rpartition(":")[2]

        def asked(request: Request) -> None:
            if not request.url.startswith(
                (site.origin(label) + "/", "data:", "blob:", f"http://holdfast.localhost:{port}/")
            ):
                problems.append(request.url)

        return asked

    def open_page(label: str, *, url: str | None = None, context: BrowserContext | None = None) -> Page:
        if context is None:
            context = browser.new_context(viewport={"width": 900, "height": 600})
            contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", failed)
        page.on("request", watch(label))
        page.goto(url or str(site.link(label)["url"]))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def is_in(page: Page, state: str, seconds: float = 60.0) -> None:
    """Wait until the page says that it is so."""
    expect(page.locator(f"#dot[data-state={state}]")).to_be_visible(timeout=seconds * 1000)
