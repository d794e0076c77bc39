"""What a test does with a browser, whichever it is. One class for each browser stands beside this file."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from support.waiting import PATIENCE


class TabGone(Exception):
    """The page was just being replaced by another; whoever waits for something looks again."""


class Tab(Protocol):
    """A page, or a frame in one. ``run`` takes a JavaScript function; a promise that it returns is waited for."""

    problems: list[str]
    """What the console reported as an error, and scripts that failed."""
    requests: list[str]
    """The address of each request, of all frames."""

    def goto(self, url: str) -> None: ...

    def reload(self) -> None: ...

    def run(self, function: str, *args: object) -> Any:
        """Raises ``TabGone`` if the page is replaced meanwhile."""
        ...

    def frame(self, host: str) -> "Tab":
        """Return the frame whose page is of this host; waits until there is one."""
        ...

    def click(self, selector: str) -> None:
        """As a person does: what takes a person's gesture in browsers is allowed by it."""
        ...

    def cookies(self) -> list[dict[str, Any]]:
        """All cookies of this browser window, of all hosts, also of frames; with the names that Playwright has."""
        ...

    def screenshot(self, path: Path) -> None: ...

    def others(self) -> Sequence["Tab"]:
        """Return what this page has opened."""
        ...

    def close(self) -> None: ...


class Browser(Protocol):
    """Each ``tab()`` is a window with cookies of its own, as of another person. Only Chromium has a ``dark`` one."""

    name: str

    def tab(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> Tab: ...

    def close(self) -> None: ...


def eventually(tab: Tab, function: str, what: str, *args: object, seconds: float = PATIENCE) -> Any:
    """Run it in the page until it returns something true, whatever becomes of the page meanwhile; return that."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := tab.run(function, *args):
                return found
        except TabGone:
            pass
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {seconds:.0f} s still not so: {what}; the page shows {text_of(tab)!r}")
        time.sleep(0.05)


def shows(tab: Tab, text: str, seconds: float = PATIENCE) -> None:
    """Wait until a text is to be read in the page."""
    eventually(tab, "text => document.body && document.body.innerText.includes(text)", text, text, seconds=seconds)


def text_of(tab: Tab) -> str:
    try:
        return str(tab.run("() => location.href + ' | ' + (document.body ? document.body.innerText : '')"))
    except TabGone:
        return "(another page is coming)"


def hosts_asked(tab: Tab) -> set[str]:
    """Return the hosts that the page has sent something to, with their ports."""
    return {urlsplit(url).netloc for url in tab.requests if not url.startswith(("data:", "about:"))}


def has_sent(tab: Tab, urls: set[str], seconds: float = PATIENCE) -> None:
    """Wait until all of these have been asked for."""
    deadline = time.monotonic() + seconds
    while missing := urls - set(tab.requests):
        assert time.monotonic() < deadline, f"not asked for within {seconds:.0f} s: {missing}"
        tab.run("() => new Promise((done) => setTimeout(done, 50))")  # here some browsers' events come in


def is_host(url: str, host: str) -> bool:
    return urlsplit(url).netloc == host


def wait_until_there(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Look until there is something."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return found
