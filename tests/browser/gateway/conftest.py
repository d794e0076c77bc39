"""A daemon with real sandboxes, both browsers, and somebody else's web site; a module's tests share them."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Playwright

from support.browsers.chromium import Chromium
from support.browsers.firefox import Firefox
from support.browsers.tab import Browser, Tab
from support.daemons.daemon import unusable_driver
from support.gateway.foreign import ForeignSite
from support.gateway.world import ADDRESSES, World, local_world, real_world

OpenTab = Callable[..., Tab]


@pytest.fixture(scope="module", autouse=True)
def sandboxes() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = Chromium(playwright, ADDRESSES)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def firefox() -> Iterator[Browser]:
    browser = Firefox(ADDRESSES)
    yield browser
    browser.close()


@pytest.fixture(params=["chromium", "firefox"])
def each_browser(request: pytest.FixtureRequest) -> Browser:
    found: Browser = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_tab(each_browser: Browser) -> Iterator[OpenTab]:
    """Each has cookies of its own, as of another person."""
    tabs: list[Tab] = []

    def open_tab(**how: object) -> Tab:
        tabs.append(each_browser.tab(**how))  # type: ignore[arg-type]  # as the browser takes it
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.close()


@pytest.fixture
def tab(open_tab: OpenTab) -> Tab:
    return open_tab()


@pytest.fixture(scope="module")
def local() -> Iterator[World]:
    with local_world() as world:
        yield world


@pytest.fixture(scope="module")
def behind_nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with real_world("nginx", tmp_path_factory.mktemp("nginx")) as world:
        yield world


@pytest.fixture(scope="module")
def behind_caddy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with real_world("caddy", tmp_path_factory.mktemp("caddy")) as world:
        yield world


@pytest.fixture(scope="module")
def foreign() -> Iterator[ForeignSite]:
    with ForeignSite() as site:
        yield site
