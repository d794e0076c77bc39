"""/docs in a real browser: every call is there, nothing comes from elsewhere, and nothing goes wrong in its script."""

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect

from support.daemons.daemon import DaemonProcess


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def page(browser: Browser, daemon: DaemonProcess, problems: list[str]) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def heard(said: ConsoleMessage) -> None:
        if said.type == "error":
            problems.append(said.text)

    def asked(request: Request) -> None:
        if not request.url.startswith(daemon.url):
            problems.append(request.url)

    def failed(error: Error) -> None:
        problems.append(f"script: {error}")

    page.on("pageerror", failed)
    page.on("console", heard)
    page.on("request", asked)
    page.goto(f"{daemon.url}/docs")
    expect(page.locator("details").first).to_be_attached(timeout=30_000)
    yield page
    page.close()


def test_every_call_is_shown(page: Page, daemon: DaemonProcess, problems: list[str]) -> None:
    paths = httpx2.get(f"{daemon.url}/openapi.json", trust_env=False).json()["paths"]
    ids = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(ids) > 80
    shown = page.locator("details").evaluate_all("boxes => boxes.map(box => box.id)")
    assert sorted(shown) == sorted(ids)
    assert "Version" in page.locator("#about").inner_text()
    assert problems == []


def test_a_call_opens_with_its_fields_and_an_example(page: Page, daemon: DaemonProcess, problems: list[str]) -> None:
    box = page.locator("#run_command")
    box.locator("summary").click()
    expect(box.locator("section")).to_be_visible()
    text = box.inner_text()
    assert f"curl {daemon.url}/v1/sessions/" in text, "the example is for this daemon"
    assert "A shell line or script" in text and "exit_code" in text
    assert problems == []


def test_calls_can_be_found(page: Page, problems: list[str]) -> None:
    page.get_by_label("Find a call").fill("snapshot")
    visible = page.locator("details:visible")
    assert 3 <= visible.count() <= 10
    assert problems == []


def test_a_link_to_one_call_opens_it(browser: Browser, daemon: DaemonProcess) -> None:
    page = browser.new_page()
    page.goto(f"{daemon.url}/docs#create_session")
    expect(page.locator("#create_session section")).to_be_visible(timeout=30_000)
    page.close()
