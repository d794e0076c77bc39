"""Whoever may not be here any more is out: with the next request, and within seconds where something is open."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jwt
import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.raw import Raw, close_frame, flood, raw, scripted, send, target
from support.gateway.visitor import FETCHES, Site, cookie_of, open_site, soon
from support.waiting import wait_for

SECONDS = 5.0
SPARE = 3.0
"""For a machine that is busy."""
ENDLESS = target(
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), ["sleep", 0.1], flood(b"4\r\nmore\r\n", 1 << 30)
)
UNTIL_CLOSE = target(send(b"HTTP/1.1 200 OK\r\n\r\n"), flood(b"more", 1 << 30))
SILENT = target(send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n"), ["wait"])
NO_ANSWER = target(["wait"])
ECHO = target(["accept"], ["echo"])


@dataclass
class Guest:
    """A visitor by a link of a key of his own, and how to be rid of him."""

    site: Site
    cookie: str
    key: str
    key_name: str
    link_id: str

    def lines(self) -> tuple[bytes, ...]:
        return (f"Origin: {self.site.origin()}".encode(), b"Sec-Fetch-Site: same-origin")

    def revoke(self) -> None:
        assert self.site.api("DELETE", f"/links/{self.link_id}").status_code == 204

    def remove_key(self) -> None:
        with self.site.daemon.client() as client:
            assert client.delete(f"/v1/keys/{self.key_name}").status_code == 204

    def destroy(self) -> None:
        assert self.site.api("DELETE", "").status_code < 300


@pytest.fixture
def guest(script: Site) -> Iterator[Guest]:
    yield make_guest(script)


def make_guest(script: Site) -> Guest:
    name = f"guest-{time.monotonic_ns()}"
    with script.daemon.client() as client:
        key = client.post("/v1/keys", json={"name": name, "scope": "admin"}).json()["key"]
    link = script.link(key=key)
    return Guest(script, cookie_of(script.hand_in(link["url"])), key, name, link["id"])


def all_open(guest: Guest, **way: Any) -> dict[str, Raw]:
    """One connection of each kind, under way."""
    found = {name: Raw(guest.site) for name in ("socket", "reads", "stalls", "until close", "silent", "waits")}
    lines = guest.lines() if "cookie" in way else ()
    assert found["socket"].websocket(ECHO, *lines, **way).startswith(b"HTTP/1.1 101 ")
    for name, where in (
        ("reads", ENDLESS), ("stalls", ENDLESS), ("until close", UNTIL_CLOSE), ("silent", SILENT), ("waits", NO_ANSWER)
    ):  # fmt: skip
        found[name].ask(where, b"Connection: close", *lines, **way)
        if name != "waits":
            assert found[name].head().startswith(b"HTTP/1.1 200 ")
    return found


def all_end(connections: dict[str, Raw]) -> None:
    """Within seconds, and none of them as if what it carried had come to its end."""
    began = time.monotonic()
    took: dict[str, float] = {}
    tails: dict[str, bytes] = {}

    def read(name: str) -> None:
        tail = b""
        if name == "stalls":  # it takes nothing until long after it was locked out
            time.sleep(SECONDS + SPARE)
        try:
            while data := connections[name].socket.recv(1 << 20):
                tail = (tail + data)[-16:]
        except ConnectionError:
            pass
        except TimeoutError:
            return
        took[name], tails[name] = time.monotonic() - began, tail

    threads = [threading.Thread(target=read, args=(name,)) for name in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(took) == set(connections), "all of them have ended"
    took["stalls"] -= SECONDS + SPARE
    assert max(took.values()) < SECONDS + SPARE, took
    assert not any(tail.endswith(b"0\r\n\r\n") for tail in tails.values()), "an end that was none"
    for one in connections.values():
        one.socket.close()


@pytest.mark.parametrize("how", [Guest.revoke, Guest.remove_key])
def test_a_guest_is_locked_out(guest: Guest, how: Callable[[Guest], None]) -> None:
    connections = all_open(guest, cookie=guest.cookie)
    how(guest)
    assert guest.site.fetch(cookie=guest.cookie).status_code == 401
    with raw(guest.site) as visitor:
        assert visitor.websocket(ECHO, *guest.lines(), cookie=guest.cookie).startswith(b"HTTP/1.1 401 ")
    all_end(connections)


def test_a_program_is_locked_out_with_its_key(guest: Guest) -> None:
    line = f"X-Holdfast-Key: {guest.key}".encode()
    owner = guest.site
    connections = {"socket": Raw(owner), "stalls": Raw(owner)}
    assert connections["socket"].websocket(ECHO, line, key=False).startswith(b"HTTP/1.1 101 ")
    connections["stalls"].ask(ENDLESS, line, key=False).head()
    guest.remove_key()
    assert owner.by_key(key=guest.key).status_code == 401
    all_end(connections)


def test_nobody_stays_in_a_session_that_is_destroyed(daemon: DaemonProcess) -> None:
    site = open_site(daemon)
    guest = make_guest(scripted(site))
    connections = all_open(guest, cookie=guest.cookie)
    guest.destroy()
    assert guest.site.fetch(cookie=guest.cookie).status_code in (401, 404, 410)
    all_end(connections)


def test_who_stays_is_not_hung_up_on(script: Site, guest: Guest) -> None:
    """The others do not notice."""
    other = make_guest(script)
    with raw(script) as stays:
        assert stays.websocket(ECHO, *other.lines(), cookie=other.cookie).startswith(b"HTTP/1.1 101 ")
        guest.revoke()
        time.sleep(3)
        stays.socket.sendall(close_frame(1000))
        assert stays.read(2)[0] == 0x88


def test_a_public_link_ends_by_itself() -> None:
    with DaemonProcess(public_links=True) as daemon:
        site = scripted(open_site(daemon))
        link = site.link(public=True, ttl_seconds=10)
        host = link["url"].split("/")[2]
        assert site.ask("/heard", host=host).status_code == 200
        connections = {"socket": Raw(site), "stalls": Raw(site)}
        assert connections["socket"].websocket(ECHO, host=host, key=False).startswith(b"HTTP/1.1 101 ")
        connections["stalls"].ask(ENDLESS, host=host, key=False).head()
        wait_for(lambda: site.ask("/heard", host=host).status_code == 401, "it has expired", 20)
        all_end(connections)


def test_a_token_ends_what_it_has_opened(script: Site) -> None:
    secret = script.api("GET", "/gateway-secret").json()["secret"]
    claims = {"sub": "ada", "sid": script.session_id, "exp": soon(10)}
    token = jwt.encode(claims, secret, algorithm="HS256")
    by_token = b"&token=" + token.encode()
    connections = {"socket": Raw(script), "stalls": Raw(script)}
    assert connections["socket"].websocket(ECHO + by_token, key=False).startswith(b"HTTP/1.1 101 ")
    assert connections["stalls"].ask(ENDLESS + by_token, key=False).head().startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: script.ask(f"/x?token={token}", headers=FETCHES).status_code == 401, "it has expired", 20)
    all_end(connections)
