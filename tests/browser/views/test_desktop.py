"""The desktop's page, in a real browser, with a real VNC server in the sandbox."""

import shutil
import time
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from browser.views.conftest import Visit, is_in
from browser.views.test_terminal import file_in
from support.daemons.daemon import DaemonProcess
from support.gateway.visitor import Site
from support.waiting import wait_for

SERVER = ("Xtigervnc", "xterm")
VNC = (
    "Xtigervnc :1 -geometry 800x600 -depth 24 -SecurityTypes None -localhost -rfbport 5901 -AlwaysShared "
    "-nolisten tcp & until [ -S /tmp/.X11-unix/X1 ]; do sleep 0.05; done; "
    "DISPLAY=:1 exec xterm -geometry 80x24+0+0"
)


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    missing = [program for program in SERVER if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; scripts/setup --test does")


@pytest.fixture
def desktop(site: Site) -> Site:
    """A session with an X server and a terminal in it, begun by hand: the host's image declares no service."""
    assert site.api("POST", "/processes", {"argv": ["sh", "-c", VNC]}).status_code == 201
    wait_for(lambda: 5901 in [one["port"] for one in site.api("GET", "/ports").json()["ports"]], "it listens")
    return site


def types(page: Page, text: str) -> None:
    """Point at the window in the desktop, as without a window manager that gives it the focus, and type."""
    page.mouse.move(200, 200)
    page.mouse.click(210, 210)
    page.keyboard.type(text, delay=10)


def size(page: Page) -> tuple[int, int]:
    """How many pixels the desktop has."""
    found = page.evaluate(
        "(() => { const c = document.querySelector('#screen canvas'); return [c.width, c.height]; })()"
    )
    return int(found[0]), int(found[1])


def test_what_is_typed_gets_into_a_window(visit: Visit, desktop: Site) -> None:
    page = visit("desktop")
    is_in(page, "connected")
    wait_for(lambda: bool(page.locator("#screen canvas").count()), "it is shown")

    def has_arrived() -> bool:
        types(page, "echo by-vnc > /workspace/typed\n")
        return file_in(desktop, "/workspace/typed") == "by-vnc\n"

    wait_for(has_arrived, "the line is in a file")


def has_size(page: Page, wanted: tuple[float, float]) -> bool:
    return size(page) == wanted


def test_the_desktop_follows_the_window(visit: Visit, desktop: Site) -> None:
    page = visit("desktop")
    is_in(page, "connected")
    for width, height in ((900, 600), (700, 460)):
        page.set_viewport_size({"width": width, "height": height})
        box = page.locator("main").bounding_box()
        assert box is not None
        wait_for(partial(has_size, page, (box["width"], box["height"])), "it has the window's size")


def test_it_goes_on_after_a_killed_daemon(visit: Visit, desktop: Site, daemon: DaemonProcess) -> None:
    page = visit("desktop")
    is_in(page, "connected")
    daemon.kill()
    is_in(page, "reconnecting")
    daemon.start()
    is_in(page, "connected")
    assert page.locator("#screen canvas").count() == 1


def test_a_sleeping_session_is_woken_by_one_click(visit: Visit, desktop: Site) -> None:
    page = visit("desktop")
    is_in(page, "connected")
    assert desktop.api("POST", "/pause").status_code == 200
    is_in(page, "asleep")
    page.get_by_role("button", name="Wake it up").click()
    is_in(page, "connected")


def test_looking_on_is_no_use_but_the_pointer_is(visit: Visit, desktop: Site) -> None:
    def used_at() -> str:
        return str(desktop.api("GET", "").json()["last_activity_at"])

    desktop.api(
        "POST", "/processes", {"argv": ["sh", "-c", "DISPLAY=:1 xterm -e sh -c 'while sleep 0.1; do date; done'"]}
    )
    page = visit("desktop")
    is_in(page, "connected")
    begun, noted = time.monotonic(), used_at()
    wait_for(lambda: time.monotonic() - begun > 2, "it draws for a while", 10)
    assert used_at() == noted
    page.mouse.move(300, 300)
    page.mouse.move(310, 310, steps=4)
    wait_for(lambda: used_at() > noted, "the pointer counts")


def test_the_clipboard_is_exchanged_by_hand_only(visit: Visit, desktop: Site) -> None:
    page = visit("desktop")
    is_in(page, "connected")

    def window_is_there() -> bool:
        types(page, "echo x > /workspace/there\n")
        return file_in(desktop, "/workspace/there") == "x\n"

    wait_for(window_is_there, "the window takes what is typed")
    page.evaluate("() => { window.wrote = 0; navigator.clipboard.writeText = () => { window.wrote += 1; }; }")
    page.get_by_role("button", name="Clipboard").click()
    page.get_by_label("Clipboard of the desktop").fill("put-in")
    page.get_by_role("button", name="Put into the desktop").click()
    expect(page.locator("#clip")).to_be_hidden()
    page.mouse.move(220, 220)  # a click would begin a selection in the window, which is what it pastes then

    def has_arrived() -> bool:
        page.keyboard.press("Control+c")
        page.keyboard.type("cat > /workspace/pasted\n", delay=10)
        for key in ("Shift+Insert", "Enter", "Control+d"):
            page.keyboard.press(key)
        try:
            wait_for(lambda: "put-in" in file_in(desktop, "/workspace/pasted"), "it is in the file", 5)
        except AssertionError:  # the desktop had not yet been told of it: once more
            return False
        return True

    wait_for(has_arrived, "what was put in can be pasted inside")
    assert page.evaluate("window.wrote") == 0


def test_a_sandbox_without_one_says_so(visit: Visit, site: Site) -> None:
    page = visit("desktop")
    expect(page.get_by_role("alertdialog")).to_contain_text("No desktop is running", timeout=30_000)
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
