"""Debian's Chromium without a screen, driven by Playwright."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Frame, Page, Playwright, Request

from support.browsers.tab import TabGone, is_host, wait_until_there

PROGRAM = "chromium-headless-shell"
_GONE = ("navigat", "destroyed", "detached", "closed")


class Chromium:
    """``addresses``: host names, which may begin with ``*.``, that are this machine."""

    name = "chromium"

    def __init__(self, playwright: Playwright, addresses: Sequence[str] = ()) -> None:
        rules = ", ".join(f"MAP {name} 127.0.0.1" for name in addresses)
        self._browser: Browser = playwright.chromium.launch(
            executable_path=needs_chromium(),
            args=["--no-sandbox", "--ignore-certificate-errors", f"--host-resolver-rules={rules}"],
        )

    def tab(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> "ChromiumTab":
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            ignore_https_errors=True,
            color_scheme="dark" if dark else "light",
        )
        return ChromiumTab(context.new_page())

    def close(self) -> None:
        self._browser.close()


class ChromiumTab:
    def __init__(self, page: Page, frame: Frame | None = None) -> None:
        self._page = page
        self._frame = frame or page.main_frame
        self.problems: list[str] = []
        self.requests: list[str] = []
        if frame is None:
            page.on("console", self._said)
            page.on("pageerror", self._failed)
            page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def _failed(self, error: Error) -> None:
        self.problems.append(f"script: {error}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def goto(self, url: str) -> None:
        self._frame.goto(url)

    def reload(self) -> None:
        self._page.reload()

    def run(self, function: str, *args: object) -> Any:
        try:
            return self._frame.evaluate(f"args => ({function})(...args)", list(args))
        except Error as error:
            if any(word in str(error).lower() for word in _GONE):
                raise TabGone(str(error)) from None
            raise

    def frame(self, host: str) -> "ChromiumTab":
        def look() -> Frame | None:
            self._page.wait_for_timeout(20)  # here Playwright hears of new frames
            return next((one for one in self._page.frames if is_host(one.url, host)), None)

        return ChromiumTab(self._page, wait_until_there(look))

    def click(self, selector: str) -> None:
        self._frame.click(selector)

    def cookies(self) -> list[dict[str, Any]]:
        return [dict(cookie) for cookie in self._page.context.cookies()]

    def screenshot(self, path: Path) -> None:
        self._page.screenshot(path=path)

    def others(self) -> list["ChromiumTab"]:
        return [ChromiumTab(page) for page in self._page.context.pages if page is not self._page]

    def close(self) -> None:
        self._page.context.close()


def needs_chromium() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"{PROGRAM} is not installed; scripts/setup --test does")
    return program
