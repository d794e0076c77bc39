"""The images ``ide`` and ``desktop`` as people use them, through the gateway. It takes built images: minutes."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.rfb import VncClient
from support.gateway.visitor import Site
from support.machine.recipes import provide, skip_unless_wanted
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(3600)
_SECONDS = 90_000
"""Of Playwright's patience, in its milliseconds: an editor takes its time on a busy machine."""
_GRACE_SECONDS = 60.0


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    skip_unless_wanted()
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    process = DaemonProcess()
    provide(process.state_dir, "ide", "desktop", "browser")
    with process as daemon:
        yield daemon


Open = Callable[[str, int], Site]


@pytest.fixture
def open_session(daemon: DaemonProcess) -> Iterator[Open]:
    """Make a session of an image, as ``holdfast new --image`` does: with the limits of the configuration."""
    made: list[Site] = []

    def open_(image: str, port: int) -> Site:
        with daemon.client() as client:
            answer = client.post("/v1/sessions", json={"image": image})
            assert answer.status_code == 201, answer.text
        made.append(Site(daemon, answer.json()["id"], port))
        return made[-1]

    yield open_
    for site in made:
        site.api("DELETE", "")


@pytest.fixture
def page(daemon: DaemonProcess, browser: Browser) -> Iterator[Page]:
    """A tab. The daemon comes first: once Playwright has a loop in this thread, the machine cannot be examined."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(_SECONDS)
    yield context.new_page()
    context.close()


def run(site: Site, cmd: str) -> str:
    done = site.api("POST", "/exec", {"cmd": cmd})
    assert done.status_code == 200, done.text
    said: str = done.json()["stdout"]
    return said


def start(site: Site, service: str) -> None:
    answer = site.api("POST", f"/services/{service}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "ready", answer.text


def open_folder(page: Page, site: Site) -> None:
    """Get in by a link, and open the workspace."""
    page.goto(site.link("ide")["url"])
    page.wait_for_selector(".monaco-workbench")
    expect(page.get_by_role("treeitem", name="src", exact=True)).to_be_visible(timeout=_SECONDS)


def processes(site: Site, what: str) -> int:
    return int(run(site, f"pgrep -fc '[{what[0]}]{what[1:]}'").strip() or 0)


def stats(site: Site) -> dict[str, int]:
    found: dict[str, int] = site.api("GET", "/stats").json()
    return found


# -- the editor --------------------------------------------------------------------------------------------------------


def test_a_file_is_edited_and_a_command_run(page: Page, open_session: Open) -> None:
    site = open_session("ide", 8765)
    assert stats(site)["memory_limit_bytes"] == 1536 << 20, "the image says what it needs"
    run(site, "mkdir src && printf 'print(1)\\n' >src/hello.py && git init -q src")
    open_folder(page, site)
    page.get_by_role("treeitem", name="src", exact=True).click()
    page.get_by_role("treeitem", name="hello.py").dblclick()
    expect(page.locator(".monaco-editor .view-line").first).to_contain_text("print", timeout=_SECONDS)
    page.locator(".monaco-editor .view-lines").first.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("print(6 * 7)")
    page.keyboard.press("Control+S")
    wait_for(lambda: "print(6 * 7)" in run(site, "cat src/hello.py"), "what was typed is saved")
    page.keyboard.press("Control+Backquote")
    page.locator(".terminal-wrapper .xterm-helper-textarea").wait_for(state="attached")
    wait_for(lambda: processes(site, "bash --init-file") > 0, "the terminal has a shell")
    page.keyboard.type("python3 src/hello.py | tee answer; code --version >version\n")
    wait_for(lambda: run(site, "cat answer 2>/dev/null") == "1\n42\n", "a command of the terminal has run")
    wait_for(lambda: run(site, "cat version 2>/dev/null").count("\n") == 3, "its own command works there")
    # what runs beside the page has come up and stayed up: it is what extensions, and so git, run in
    wait_for(lambda: processes(site, "extensionHost") == 1, "the extension host runs")
    page.get_by_role("tab", name=re.compile("Source Control")).click()
    expect(page.locator(".scm-view").get_by_text("hello.py")).to_be_visible(timeout=_SECONDS)
    expect(page.get_by_text("terminated unexpectedly")).to_have_count(0)
    expect(page.get_by_text(re.compile("Copilot|Sign in"))).to_have_count(0)
    assert run(site, "ls -A ~").split() == [".cache", ".local", "answer", "src", "version"]


def test_tabs_that_are_closed_give_their_memory_back(page: Page, open_session: Open) -> None:
    site = open_session("ide", 8765)
    run(site, "mkdir src")
    open_folder(page, site)
    for _ in range(2):
        other = page.context.new_page()
        other.goto(site.origin("ide") + "/")
        other.get_by_role("treeitem", name="src", exact=True).wait_for()
    wait_for(lambda: processes(site, "extensionHost") == 3, "each tab has an extension host")
    for one in page.context.pages:
        one.close()
    wait_for(lambda: processes(site, "extensionHost") == 0, "they have ended", _GRACE_SECONDS + 120)
    told = stats(site)
    print({name: value for name, value in told.items() if "memory" in name})
    assert told["oom_kills"] == 0
    assert told["memory_peak_bytes"] < 1400 << 20


def test_its_own_way_to_ports_is_closed_and_hosts_are_compared(open_session: Open) -> None:
    site = open_session("ide", 8765)
    start(site, "ide")
    assert site.by_key("/proxy/8765/healthz", label="ide").status_code == 403
    headers = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA"]
    shake = " ".join(f"-H '{header}'" for header in [*headers, "Origin: https://ide.example.net"])
    curl = f"curl -s -m 3 -o /dev/null -w '%{{http_code}}' {shake}"
    commit = run(site, "curl -s localhost:8765/ | grep -o 'stable-[0-9a-f]*' | head -1").strip()
    url = f"http://127.0.0.1:8765/{commit}?reconnectionToken=x"
    assert run(site, f"{curl} -H 'X-Forwarded-Host: ide.example.net' '{url}'") == "101"
    assert run(site, f"{curl} '{url}'") == "403"


# -- the desktop -------------------------------------------------------------------------------------------------------


@pytest.fixture
def screen(open_session: Open) -> Iterator[tuple[Site, VncClient]]:
    site = open_session("desktop", 5901)
    start(site, "desktop")
    with (
        SyncClient(site.daemon.url, site.daemon.key) as client,
        client.get_session(site.session_id).ports.forward(5901) as forward,
        VncClient(forward.port) as vnc,
    ):
        yield site, vnc


def test_what_is_typed_reaches_a_window(screen: tuple[Site, VncClient]) -> None:
    site, vnc = screen
    wait_for(lambda: processes(site, "jwm") > 0, "the window manager runs")
    wait_for(lambda: len(set(vnc.look()[: vnc.width * 400 : 4])) > 3, "the desktop is painted, in shades of a colour")
    empty = vnc.look()
    vnc.click(vnc.width // 4, vnc.height - 15)  # nothing is there
    assert run(site, "xterm >/dev/null 2>&1 & xdotool search --sync --onlyvisible --class XTerm | head -1").strip()
    wait_for(lambda: processes(site, "bash") > 1, "the terminal has a shell")
    vnc.click(300, 300)
    assert vnc.look() != empty
    vnc.type('echo "Typed at $((40+2))" >~/typed\n')
    wait_for(lambda: run(site, "cat ~/typed 2>/dev/null") == "Typed at 42\n", "the line was typed into the window")
    # and what agents use to look and click
    assert run(site, "maim /tmp/seen.png && head -c 4 /tmp/seen.png | tail -c 3") == "PNG"


def test_the_screen_follows_the_window(screen: tuple[Site, VncClient]) -> None:
    site, vnc = screen
    for width, height in ((1024, 600), (1600, 1000)):
        vnc.resize(width, height)
        wait_for(lambda: bool(vnc.look()) and (vnc.width, vnc.height) == (width, height), "it is told")  # noqa: B023
        wait_for(lambda: run(site, "xdotool getdisplaygeometry").split() == [str(width), str(height)], "it is so")  # noqa: B023


def test_a_browser_in_it(open_session: Open) -> None:
    site = open_session("browser", 5901)
    page = "'data:text/html,<title>Here</title><body style=background:red>'"
    run(site, f"chromium --headless --window-size=400,300 --screenshot=/tmp/page.png {page} 2>/dev/null")
    assert run(site, "head -c 4 /tmp/page.png | tail -c 3") == "PNG"
    start(site, "desktop")
    run(site, f"chromium {page} >/dev/null 2>&1 &")
    look = "timeout 5 xdotool search --name Chromium getwindowname %@"
    wait_for(lambda: "Here" in run(site, look), "it has a window")
    assert stats(site)["oom_kills"] == 0


# -- both, after bad times ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("image", "service", "port"), [("ide", "ide", 8765), ("desktop", "desktop", 5901)])
def test_it_starts_again_whatever_happened(open_session: Open, image: str, service: str, port: int) -> None:
    site = open_session(image, port)
    start(site, service)
    for _ in range(2):
        run(site, "kill -9 $(pgrep -f 'code-server|Xtigervnc|xinit|jwm')")
        wait_for(lambda: state(site, service) != "ready", "it is noticed")
        start(site, service)
    assert site.api("POST", "/hibernate", {"as": "files"}).status_code == 200
    start(site, service)
    assert site.api("POST", "/pause").status_code == 200
    start(site, service)
    copy = site.api("POST", "/fork")
    assert copy.status_code == 201, copy.text
    other = Site(site.daemon, copy.json()["id"], port)
    start(other, service)
    other.api("DELETE", "")


def state(site: Site, name: str) -> str:
    listed = site.api("GET", "/services").json()["services"]
    found: str = next(one["state"] for one in listed if one["name"] == name)
    return found
