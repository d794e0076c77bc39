"""The WebSockets of our own pages: who gets one, what it carries, and when it ends."""

import contextlib
import gzip
import json
import re
import time
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from support.daemons.daemon import DaemonProcess
from support.gateway.views import KEY, opened, words
from support.gateway.visitor import Site
from support.waiting import wait_for


@pytest.fixture
def site(daemon: DaemonProcess) -> Iterator[Site]:
    with daemon.client() as client:
        site = Site(daemon, client.post("/v1/sessions", json={}).json()["id"])
        yield site
        client.delete(f"/v1/sessions/{site.session_id}")


def refused(site: Site, **more: str) -> tuple[int, str]:
    """The status and the code of a handshake that fails."""
    with pytest.raises(InvalidStatus) as failure, opened(site, **more):
        pass
    body = failure.value.response.body
    return failure.value.response.status_code, str(json.loads(body or b"{}").get("error", {}).get("code"))


def processes(site: Site) -> list[dict[str, object]]:
    found: list[dict[str, object]] = site.api("GET", "/processes").json()["processes"]
    return found


def reads(connection: ClientConnection, until: bytes) -> bytes:
    data = b""
    while until not in data:
        message = connection.recv(timeout=30)
        data += message if isinstance(message, bytes) else b""
    return data


def test_who_may_not_gets_nothing_started(site: Site) -> None:
    cookie = site.enter("terminal")
    assert refused(site) == (401, "unauthorized")
    assert refused(site, Cookie="__Host-hf=made-up") == (401, "unauthorized")
    for origin in ("http://evil.example", site.origin(3000), "null", site.daemon.url, ""):
        assert refused(site, Cookie=cookie, origin=origin) == (403, "forbidden")
    assert refused(site, Cookie=site.enter("desktop")) == (401, "unauthorized"), "a cookie is for one label"
    assert refused(site, Cookie=cookie, path="/") == (404, "not_found")
    assert processes(site) == []


@pytest.mark.parametrize(
    "query", ["", "key=short", "key=" + "x" * 65, "process=prc_1", f"key={KEY}&rows=0", f"key={KEY}&offset=-1"]
)
def test_what_makes_no_sense_is_told(site: Site, query: str) -> None:
    with opened(site, query, X_Holdfast_Key=site.daemon.key) as terminal:
        assert words(terminal)["error"]["code"] == "bad_request"
        with pytest.raises(ConnectionClosed):
            terminal.recv(timeout=10)
    assert processes(site) == []


def test_the_same_key_finds_the_same_terminal_and_an_offset_goes_on(site: Site) -> None:
    cookie = site.enter("terminal")
    with opened(site, Cookie=cookie) as terminal:
        first = words(terminal)["attached"]
        terminal.send(b"echo o''ne\n")
        seen = reads(terminal, b"one\r\n")
    with opened(site, Cookie=cookie) as again:
        assert words(again)["attached"]["process_id"] == first["process_id"]
        assert reads(again, b"one\r\n").startswith(seen)
    later = f"process={first['process_id']}&offset={len(seen)}"
    with opened(site, later, Cookie=cookie) as terminal:
        assert words(terminal)["attached"]["offset"] == len(seen)
        terminal.send(b"echo t''wo\n")
        assert b"one" not in reads(terminal, b"two\r\n")
        terminal.send(b"exit 3\n")
        assert words(terminal)["exit"]["exit_code"] == 3


def test_output_waits_for_a_page_that_does_not_keep_up(site: Site) -> None:
    with opened(site, X_Holdfast_Key=site.daemon.key) as terminal:
        attached = words(terminal)["attached"]
        terminal.send(b"head -c 3000000 /dev/zero | tr '\\0' x; echo; echo e''nd\n")
        taken = 0
        with pytest.raises(TimeoutError):
            while True:
                message = terminal.recv(timeout=1.5)
                taken += len(message) if isinstance(message, bytes) else 0
        assert (1 << 20) <= taken < (2 << 20), "it stops after a megabyte that nobody has shown"
        terminal.send(json.dumps({"taken": taken}))
        more = 0
        while taken + more < 2_000_000:
            message = terminal.recv(timeout=30)
            more += len(message) if isinstance(message, bytes) else 0
        terminal.send(json.dumps({"taken": taken + more}))
        reads(terminal, b"end\r\n")
    assert attached["process_id"]


def test_wrong_words_end_it(site: Site) -> None:
    with opened(site, X_Holdfast_Key=site.daemon.key) as terminal:
        words(terminal)
        terminal.send('{"resize": {"rows": 0}}')
        assert words(terminal)["error"]["code"] == "bad_input"
        with pytest.raises(ConnectionClosed) as closed:
            terminal.recv(timeout=10)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011


def test_a_revoked_link_ends_it_within_five_seconds(site: Site) -> None:
    link = site.link("terminal")
    answer = site.hand_in(link["url"])
    cookie = answer.headers["set-cookie"].partition(";")[0]
    with opened(site, Cookie=cookie) as terminal:
        words(terminal)
        site.api("DELETE", f"/links/{link['id']}")
        revoked = time.monotonic()
        with pytest.raises(ConnectionClosed):
            while True:
                terminal.recv(timeout=10)
    assert time.monotonic() - revoked < 5


def test_a_socket_does_not_wake_a_session_and_a_post_does(site: Site) -> None:
    cookie = site.enter("terminal")
    with opened(site, Cookie=cookie) as terminal:
        words(terminal)
        assert site.api("POST", "/pause").status_code == 200
        with pytest.raises(ConnectionClosed):
            while True:
                terminal.recv(timeout=10)
    assert refused(site, Cookie=cookie) == (503, "asleep")
    asked = site.fetch("/.holdfast/state", cookie=cookie, label="terminal")
    assert (asked.status_code, asked.json()["error"]["code"]) == (503, "asleep")
    assert site.api("GET", "").json()["status"] == "paused"
    foreign = site.fetch(
        "/.holdfast/wake", method="POST", cookie=cookie, label="terminal", headers={"Origin": "http://evil.example"}
    )
    assert foreign.status_code == 403 and site.api("GET", "").json()["status"] == "paused"
    own = {"Origin": site.origin("terminal")}
    assert site.fetch("/.holdfast/wake", method="POST", cookie=cookie, label="terminal", headers=own).status_code == 200
    assert site.api("GET", "").json()["status"] == "active"
    assert site.fetch("/.holdfast/state", cookie=cookie, label="terminal").json() == {"awake": True}


def test_a_stopping_daemon_hangs_up(site: Site, daemon: DaemonProcess) -> None:
    with opened(site, X_Holdfast_Key=site.daemon.key) as terminal:
        words(terminal)
        daemon.stop()
        with pytest.raises(ConnectionClosed):
            while True:
                terminal.recv(timeout=10)
    daemon.start()


def test_at_most_so_many_at_once(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        query = "process=prc_" + "0" * 26
        for number in range(64):
            terminal = stack.enter_context(opened(site, f"key={KEY}{number % 2}", X_Holdfast_Key=site.daemon.key))
            words(terminal)
        assert refused(site, query=query, X_Holdfast_Key=site.daemon.key)[1] == "too_many_connections"
    wait_for(lambda: _opens(site), "there is room again", 20)
    assert len(processes(site)) == 2


def _opens(site: Site) -> bool:
    try:
        with opened(site, f"key={KEY}0", X_Holdfast_Key=site.daemon.key):
            return True
    except InvalidStatus:
        return False


def test_the_page_and_its_files(site: Site) -> None:
    cookie = site.enter("terminal")
    page = site.go("/", cookie=cookie, label="terminal")
    assert page.status_code == 200 and page.headers["cache-control"] == "no-store"
    names = re.findall(r'(?:src|href)="(/\.holdfast/[^"]+)"', page.text)
    assert len(names) >= 4
    for name in names:
        plain = site.ask(name, label="terminal", headers={"Accept-Encoding": "identity"})
        assert plain.status_code == 200 and "immutable" in plain.headers["cache-control"]
        packed = site.pages.build_request(
            "GET", f"{site.daemon.url}{name}", headers={"Host": site.host("terminal"), "Accept-Encoding": "gzip"}
        )
        answer = site.pages.send(packed, stream=True)
        assert gzip.decompress(b"".join(answer.iter_raw())) == plain.content
    other = re.sub(r"[0-9a-f]{16}", "0" * 16, names[0])
    assert site.ask(other, label="terminal").status_code == 404
    assert site.go("/other", cookie=cookie, label="terminal").status_code == 404
    assert (
        site.go(
            "/", cookie=cookie, label="terminal", method="POST", headers={"Origin": site.origin("terminal")}
        ).status_code
        == 404
    )
