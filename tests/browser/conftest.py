"""A real browser, without a screen: Debian's, driven by Playwright. Skipped where there is none."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from support.daemons.daemon import DaemonProcess


@pytest.fixture(scope="module")  # not longer: Playwright has a loop in this thread, where others want one of their own
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium-headless-shell")
    if program is None:
        pytest.skip("chromium-headless-shell is not installed; scripts/setup --test does")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with DaemonProcess(driver="process") as daemon:
        yield daemon
