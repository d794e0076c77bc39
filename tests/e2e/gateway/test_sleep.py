"""A session that sleeps: a person wakes it, once for all who ask, and a forgotten tab does not."""

import time
from concurrent.futures import ThreadPoolExecutor

from support.gateway.raw import HANDSHAKE, raw
from support.gateway.visitor import Site, listens
from support.waiting import wait_for


def status(site: Site) -> str:
    found: str = site.api("GET", "").json()["status"]
    return found


def wakes(site: Site) -> int:
    with site.daemon.client() as client:
        kinds = {"session_id": site.session_id, "kind": "resumed", "follow": "false", "limit": "100"}
        found = client.get("/v1/events", params=kinds)
    assert found.status_code == 200, found.text
    return len(found.json()["events"])


def test_the_background_does_not_wake_it_and_fifty_people_wake_it_once(site: Site) -> None:
    cookie = site.enter()
    site.api("POST", "/pause")
    wait_for(lambda: status(site) == "paused", "it sleeps", 30)
    before = wakes(site)
    origin = f"Origin: {site.origin()}".encode()
    with raw(site) as visitor:
        visitor.ask(b"/ws", *HANDSHAKE, origin, cookie=cookie)
        code, headers, body = visitor.answer()
        assert code == 503 and b'"asleep"' in body and headers["retry-after"] == "1"
    for method in ("GET", "HEAD", "OPTIONS"):
        answer = site.fetch("/page", cookie=cookie, method=method)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert method == "HEAD" or answer.json()["error"]["code"] == "asleep"
    stranger = site.ask("/page", headers={"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})
    assert stranger.status_code == 401, "who is not known does not even learn that it sleeps"
    time.sleep(1)
    assert status(site) == "paused", "nobody has woken it"
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: site.go("/page", cookie=cookie), range(50)))
    assert {one.status_code for one in answers} <= {200, 503}
    assert all("inside" in one.text or "Waking" in one.text for one in answers)
    wait_for(lambda: site.go("/page", cookie=cookie).status_code == 200, "it is awake", 30)
    assert wakes(site) == before + 1


def test_what_changes_something_and_programs_wait_for_it(site: Site) -> None:
    cookie = site.enter()
    listens(site)
    for by_key in (False, True):
        site.api("POST", "/pause")
        wait_for(lambda: status(site) == "paused", "it sleeps", 30)
        if by_key:
            answer = site.by_key("/page")
        else:
            headers = {"Origin": site.origin()}
            answer = site.fetch("/x", cookie=cookie, method="POST", headers=headers, content=b"body")
        assert answer.status_code == 200, "it is woken, and answers"


def test_what_is_open_ends_when_it_falls_asleep(site: Site) -> None:
    cookie = site.enter()
    listens(site)
    origin = f"Origin: {site.origin()}".encode()
    with raw(site) as visitor:
        assert visitor.websocket(b"/ws", origin, cookie=cookie).startswith(b"HTTP/1.1 101 ")
        site.api("POST", "/pause")
        assert visitor.seconds_to_end() < 8
    time.sleep(1)
    assert status(site) == "paused"
