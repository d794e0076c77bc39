"""Real browsers, without a screen: Debian's Chromium and Firefox. What needs one that is missing is skipped."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from support.browsers.chromium import needs_chromium
from support.daemons.daemon import DaemonProcess


@pytest.fixture(scope="module")  # not longer: Playwright has a loop in this thread, where others want one of their own
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=needs_chromium(), args=["--no-sandbox"])
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with DaemonProcess(driver="process") as daemon:
        yield daemon
