"""The terminal's page, in a real browser: what is typed arrives, and what appears does so once, whatever happens."""

import json
import time
from functools import partial

import pytest
from playwright.sync_api import Page, WebSocket, expect

from browser.views.conftest import Visit, is_in
from support.daemons.daemon import DaemonProcess
from support.gateway.visitor import Site
from support.waiting import wait_for

READY = "PS1='% '; clear\n"


def rows(page: Page) -> list[str]:
    """What the screen shows."""
    return [row.replace("\xa0", " ").rstrip() for row in page.locator(".xterm-rows > div").all_inner_texts()]


def shows(page: Page, text: str, seconds: float = 60.0) -> None:
    """Wait until a whole line of the screen is this."""
    wait_for(lambda: text in rows(page), f"{text!r} is on the screen", seconds)


def opened(visit: Visit) -> Page:
    """A terminal whose prompt is ``%``."""
    page = visit("terminal")
    is_in(page, "connected")
    page.keyboard.type(READY)
    shows(page, "%")
    return page


def click_on(page: Page, text: str) -> None:
    """Click on words on the screen: the terminal looks at where the pointer is, and not at elements."""
    box = page.locator(".xterm-rows").get_by_text(text).first.bounding_box()
    assert box is not None
    x, y = box["x"] + 12, box["y"] + box["height"] / 2
    page.mouse.move(x - 4, y)
    page.mouse.move(x, y, steps=3)
    page.mouse.click(x, y)


def file_in(site: Site, path: str) -> str:
    url = f"{site.daemon.url}/v1/sessions/{site.session_id}/fs/read"
    headers = {"Authorization": f"Bearer {site.daemon.key}", "Accept": "application/octet-stream"}
    answer = site.pages.get(url, params={"path": path}, headers=headers)
    return answer.content.decode() if answer.status_code == 200 else ""


def processes(site: Site) -> list[dict[str, object]]:
    found: list[dict[str, object]] = site.api("GET", "/processes").json()["processes"]
    return found


def test_what_is_typed_runs_and_what_it_says_appears(visit: Visit, site: Site) -> None:
    page = opened(visit)
    page.keyboard.type("echo größe-$((6*7)) | tee /workspace/typed\n")
    shows(page, "größe-42")
    assert file_in(site, "/workspace/typed") == "größe-42\n"


def second_row_is(page: Page, text: str) -> bool:
    return rows(page)[1:2] == [text]


def test_the_terminal_has_the_size_of_the_window(visit: Visit) -> None:
    page = opened(visit)
    sizes: list[tuple[int, ...]] = []
    for width, height in ((900, 600), (640, 420)):
        page.set_viewport_size({"width": width, "height": height})
        wait_for(lambda: len(sizes) == 0 or len(rows(page)) < sizes[0][0], "the screen has changed")
        page.keyboard.type(f"clear; stty size; echo asked-{height}\n")
        wait_for(partial(second_row_is, page, f"asked-{height}"), "it has told")
        sizes.append(tuple(int(number) for number in rows(page)[0].split()))
        assert sizes[-1][0] == len(rows(page))
    assert sizes[1][0] < sizes[0][0] and sizes[1][1] < sizes[0][1]


def test_what_is_pasted_arrives_whole(visit: Visit, site: Site) -> None:
    page = opened(visit)
    page.keyboard.type("stty -icanon -echo; echo re''ady; head -c 100000 > /workspace/pasted; stty sane; echo whole\n")
    shows(page, "ready")  # and so has heard that the shell, which wants to know of a paste, does not read now
    wait_for(lambda: file_in(site, "/workspace/pasted") == "" and len(processes(site)) == 1, "head has begun")
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
            document.querySelector("textarea").dispatchEvent(event);
        }""",
        "0123456789" * 10_000,
    )
    shows(page, "whole")
    assert file_in(site, "/workspace/pasted") == "0123456789" * 10_000


def test_a_killed_daemon_loses_and_doubles_nothing(visit: Visit, daemon: DaemonProcess) -> None:
    page = opened(visit)
    page.keyboard.type("clear; for i in $(seq 1 400); do printf %d, $i; sleep 0.02; done; echo; echo all''done\n")
    wait_for(lambda: "".join(rows(page)).count(",") > 60, "it has begun")
    daemon.kill()
    is_in(page, "reconnecting")
    daemon.start()
    is_in(page, "connected")
    shows(page, "alldone")
    text = "".join(rows(page)).partition("alldone")[0]
    assert text == "".join(f"{number}," for number in range(1, 401))
    page.keyboard.type("echo on''wards\n")
    shows(page, "onwards")


def test_a_tab_keeps_its_terminal_over_a_reload_and_another_tab_has_its_own(visit: Visit, site: Site) -> None:
    page = opened(visit)
    page.keyboard.type("echo first; printf '\\e[6n\\e[c'; MINE=1\n")
    shows(page, "first")
    before = processes(site)
    page.reload()
    is_in(page, "connected")
    shows(page, "first")
    page.keyboard.type('clear; echo "still-$MINE"\n')
    shows(page, "still-1")
    assert [one["process_id"] for one in processes(site)] == [one["process_id"] for one in before]
    with page.context.expect_page() as appeared:
        page.get_by_role("link", name="New terminal").click()
    other = appeared.value
    is_in(other, "connected")
    other.keyboard.type("PS1='% '; clear; echo \"other-$MINE\"\n")
    shows(other, "other-")
    assert len(processes(site)) == 2


def test_a_great_deal_of_output_comes_whole(visit: Visit, site: Site) -> None:
    received: list[int] = []

    def count(payload: str | bytes) -> None:
        received.append(len(payload) if isinstance(payload, bytes) else 0)

    def watch(socket: WebSocket) -> None:
        socket.on("framereceived", count)

    page = visit("terminal", url="about:blank")
    page.on("websocket", watch)
    page.goto(str(site.link("terminal")["url"]))
    is_in(page, "connected")
    page.keyboard.type("seq 1 400000; echo all''seen\n")
    shows(page, "allseen", 120)
    assert rows(page)[-3] in ("399999", "400000")
    wait_for(
        lambda: bool(rows(page)) and sum(received) == processes(site)[0]["output_bytes"], "each byte has come, once"
    )


def test_a_flood_can_be_stopped(visit: Visit) -> None:
    page = opened(visit)
    page.keyboard.type("yes\n")
    wait_for(lambda: rows(page)[:5] == ["y"] * 5, "it floods")
    page.keyboard.press("Control+c")
    page.keyboard.type("echo stop''ped\n")
    shows(page, "stopped", 30)


def test_hostile_output_does_nothing(visit: Visit) -> None:
    page = opened(visit)
    page.evaluate("() => { navigator.clipboard.writeText = () => { window.wrote = true; }; }")
    hostile = (
        r"\033]52;c;ZXZpbA==\007"  # the clipboard
        r"\033]8;;javascript:document.title=1\007press-me\033]8;;\007 "
        r"\033]0;<img src=x onerror=alert(1)>\342\200\256\007"  # the title
        r"\033]1337;File=inline=1:aGk=\007\033P1000p\033\\\033[8;3;3t\033[21t"
        r"<script>document.title=\"evil\"</script>\n"
    )
    page.keyboard.type(f"clear; printf '{hostile}'; echo print''ed\n")
    shows(page, "printed")
    before = len(page.context.pages)
    click_on(page, "press-me")
    assert rows(page)[0].endswith('<script>document.title="evil"</script>'), "it is text"
    expect(page).to_have_title("<img src=x onerror=alert(1)> · Terminal")
    assert len(page.context.pages) == before and len(rows(page)) > 10
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("window.wrote") is None, "the clipboard is the person's own"
    page.keyboard.type("\necho go''on\n")
    shows(page, "goon")


def test_links_are_opened_without_a_way_back(visit: Visit, site: Site) -> None:
    page = opened(visit)
    target = f"{site.origin(3000)}/x"
    page.keyboard.type(f"clear; printf '\\033]8;;{target}\\007press-me\\033]8;;\\007\\n'\n")
    shows(page, "press-me")
    with page.context.expect_page() as appeared:
        click_on(page, "press-me")
    assert appeared.value.evaluate("window.opener") is None
    wait_for(lambda: appeared.value.url == target, "it leads there")


def test_a_shell_that_has_ended_says_so_and_enter_starts_another(visit: Visit, site: Site) -> None:
    page = opened(visit)
    page.keyboard.type("echo kept; exit 3\n")
    is_in(page, "ended")
    expect(page.get_by_role("alertdialog")).to_contain_text("Exit code 3")
    page.keyboard.press("Enter")
    is_in(page, "connected")
    page.keyboard.type("echo an''other\n")
    shows(page, "another")
    assert "kept" in rows(page)


@pytest.mark.parametrize("how", ["pause", "hibernate"])
def test_a_forgotten_tab_lets_the_session_sleep_and_one_click_wakes_it(visit: Visit, site: Site, how: str) -> None:
    page = opened(visit)
    page.keyboard.type("echo before; MINE=1\n")
    shows(page, "before")
    assert site.api("POST", f"/{how}").status_code == 200
    is_in(page, "asleep")
    expect(page.get_by_role("alertdialog")).to_contain_text("asleep")
    asked = time.monotonic()
    wait_for(lambda: time.monotonic() - asked > 3, "it had time to come back by itself", 10)
    assert site.api("GET", "").json()["status"] == "paused"
    page.get_by_role("button", name="Wake it up").click()
    is_in(page, "connected")
    assert site.api("GET", "").json()["status"] == "active"
    page.keyboard.type('echo "after-$MINE"\n')
    shows(page, "after-1" if how == "pause" else "after-")
    assert "before" in rows(page), "what was on the screen stays"


def test_an_attached_terminal_is_no_use_of_the_session_but_a_key_is(visit: Visit, site: Site) -> None:
    def used_at() -> str:
        return str(site.api("GET", "").json()["last_activity_at"])

    page = opened(visit)
    page.keyboard.type("sleep 1; echo la''te; while sleep 0.1; do echo tick; done\n")
    shows(page, "late")
    noted = used_at()
    shows(page, "tick")
    wait_for(lambda: rows(page).count("tick") > 10, "it ticks")
    assert used_at() == noted
    page.keyboard.press("Control+c")
    wait_for(lambda: used_at() > noted, "a key counts")


def test_a_revoked_link_ends_it_within_seconds(visit: Visit, site: Site) -> None:
    link = site.link("terminal")
    page = visit("terminal", url=str(link["url"]))
    is_in(page, "connected")
    assert site.api("DELETE", f"/links/{link['id']}").status_code == 204
    revoked = time.monotonic()
    is_in(page, "locked", 10)
    assert time.monotonic() - revoked < 5
    expect(page.get_by_role("alertdialog")).to_contain_text("revoked")


def test_a_destroyed_session_is_gone(visit: Visit, site: Site) -> None:
    page = opened(visit)
    site.api("DELETE", "")
    is_in(page, "gone", 20)


def test_the_page_may_be_shown_by_the_daemons_own_pages_only(site: Site) -> None:
    cookie = site.enter("terminal")
    policy = site.go("/", cookie=cookie, label="terminal").headers["content-security-policy"]
    rules = dict(rule.partition(" ")[::2] for rule in policy.split("; "))
    port = site.daemon.url.rpartition(":")[2]
    assert set(rules["frame-ancestors"].split()) == {
        "'self'",
        *(f"{host}:{port}" for host in ("localhost", "127.0.0.1", "holdfast.localhost")),
    }
    assert rules["script-src"] == "'self'" and rules["default-src"] == "'none'"
    assert json.dumps(policy).count("unsafe") == 1, "attributes of styles alone"


def test_the_daemons_own_page_may_show_it_in_a_frame(visit: Visit, site: Site) -> None:
    page = visit("terminal", url=f"{site.daemon.url.replace('127.0.0.1', 'holdfast.localhost')}/healthz")
    page.evaluate(
        """address => {
            const frame = document.createElement("iframe");
            frame.src = address;
            document.body.replaceChildren(frame);
        }""",
        site.link("terminal")["url"],
    )
    inside = page.frame_locator("iframe")
    expect(inside.locator("#dot[data-state=connected]")).to_be_visible(timeout=60_000)
