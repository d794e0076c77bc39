"""Previews of threads: what the API says of them opens the program in the sandbox, and nothing else."""

from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.visitor import NAVIGATES, Site, cookie_of, open_site, serve

OTHER = 3001


def code(answer: Any) -> str:
    found: str = answer.json()["error"]["code"]
    return found


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(agents=["scripted"]) as process:
        process.keep_port()
        yield process


def resolve(daemon: DaemonProcess, key: str, *, port: int | None = 3000, by: str | None = None) -> dict[str, Any]:
    with daemon.client(90) as client:
        body = {"options": {"preview_port": port}} if port else {}
        headers = {"Authorization": f"Bearer {by}"} if by else {}
        answer = client.post(f"/v1/threads/{key}/resolve", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def look(daemon: DaemonProcess, key: str, by: str | None = None) -> dict[str, Any]:
    with daemon.client() as client:
        answer = client.get(f"/v1/threads/{key}", headers={"Authorization": f"Bearer {by}"} if by else {})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def site_of(daemon: DaemonProcess, thread: dict[str, Any]) -> Site:
    site = Site(daemon, thread["session_id"])
    serve(site)
    return site


def go(site: Site, token: str, label: str | int | None = None) -> Any:
    return site.ask(f"/page?token={token}", label=label, headers=NAVIGATES)


def test_a_preview_opens_the_program(daemon: DaemonProcess) -> None:
    thread = resolve(daemon, "opens")["thread"]
    site = site_of(daemon, thread)
    assert thread["preview_url"] == site.origin() + "/"
    assert thread["preview_expires_at"] > thread["created_at"]
    answer = go(site, thread["preview_token"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/page")
    assert "inside" in site.go("/page", cookie=cookie_of(answer)).text
    headers = {"Authorization": f"Bearer {thread['preview_token']}"}
    entered = site.ask("/.holdfast/enter", method="POST", headers=headers)
    assert site.fetch("/page", cookie=cookie_of(entered)).status_code == 200


def test_it_is_good_for_its_port_and_its_session_only(daemon: DaemonProcess) -> None:
    thread = resolve(daemon, "narrow")["thread"]
    site = site_of(daemon, thread)
    site.api("POST", "/tunnels", {"name": "web", "port": 3000})
    for label in (OTHER, "web"):
        assert code(site.ask(f"/page?token={thread['preview_token']}", label=label)) == "unauthorized"
    other = open_site(daemon)
    assert code(other.ask(f"/page?token={thread['preview_token']}")) == "unauthorized"
    cookie = cookie_of(go(site, thread["preview_token"]))
    assert code(site.fetch(cookie=cookie, label=OTHER)) == "unauthorized"
    other.api("DELETE", "")


def test_it_is_kept_until_it_is_about_to_expire(daemon: DaemonProcess) -> None:
    first = resolve(daemon, "kept")["thread"]
    assert (
        look(daemon, "kept")["preview_token"]
        == first["preview_token"]
        == resolve(daemon, "kept")["thread"]["preview_token"]
    )
    daemon.restart()
    assert look(daemon, "kept")["preview_token"] == first["preview_token"], "the next daemon has it as well"
    moved = resolve(daemon, "kept", port=OTHER)["thread"]
    assert moved["preview_url"] != first["preview_url"] and moved["preview_token"] != first["preview_token"]
    assert jwt.decode(moved["preview_token"], options={"verify_signature": False})["label"] == str(OTHER)


def test_it_ends_with_its_sandbox(daemon: DaemonProcess) -> None:
    before = resolve(daemon, "ends")["thread"]
    site = site_of(daemon, before)
    cookie = cookie_of(go(site, before["preview_token"]))
    assert site.fetch("/page", cookie=cookie).status_code == 200
    site.api("DELETE", "")
    found = resolve(daemon, "ends", port=None)
    after = found["thread"]
    assert found["how"] == "recreated" and after["session_id"] != before["session_id"]
    assert after["preview_token"] != before["preview_token"] and after["preview_url"] != before["preview_url"]
    new = site_of(daemon, after)
    assert code(new.ask(f"/page?token={before['preview_token']}")) == "unauthorized"
    gone = site.ask(f"/page?token={before['preview_token']}")
    assert gone.status_code in (404, 410), gone.text
    assert go(new, after["preview_token"]).status_code == 303


def test_it_ends_with_the_key_that_asked_for_it(daemon: DaemonProcess) -> None:
    with daemon.client() as client:
        keys = {}
        for name, scope in (("ann", "use"), ("bob", "use"), ("eve", "read")):
            made = client.post("/v1/keys", json={"name": name, "scope": scope, "owner": "team"})
            keys[name] = made.json()["key"]
        ann = resolve(daemon, "shared", by=keys["ann"])["thread"]
        site = site_of(daemon, ann)
        bob = look(daemon, "shared", by=keys["bob"])
        assert bob["preview_token"] == ann["preview_token"], "one for all who may use it"
        eve = look(daemon, "shared", by=keys["eve"])
        assert eve["preview_url"] and eve["preview_token"] is None, "who may only look gets no way in"
        cookie = cookie_of(go(site, ann["preview_token"]))
        assert site.fetch("/page", cookie=cookie).status_code == 200
        client.delete("/v1/keys/ann")
        assert code(site.fetch("/page", cookie=cookie)) == "unauthorized"
        assert code(site.ask(f"/page?token={ann['preview_token']}")) == "unauthorized"
        again = look(daemon, "shared", by=keys["bob"])
        assert again["preview_token"] != ann["preview_token"] and go(site, again["preview_token"]).status_code == 303
        for name in ("bob", "eve"):
            client.delete(f"/v1/keys/{name}")


def test_lists_tell_where_and_not_how_to_get_in(daemon: DaemonProcess) -> None:
    thread = resolve(daemon, "listed")["thread"]
    with daemon.client() as client:
        [listed] = client.get("/v1/threads", params={"prefix": "listed"}).json()["threads"]
        paused = client.post("/v1/threads/listed/pause").json()
    for shown in (listed, paused):
        assert shown["preview_url"] == thread["preview_url"]
        assert (shown["preview_token"], shown["preview_expires_at"]) == (None, None)
    site = Site(daemon, thread["session_id"])
    assert go(site, look(daemon, "listed")["preview_token"]).status_code == 303, "it sleeps, and is not woken by a look"
    with daemon.client() as client:
        assert client.get("/v1/threads/listed").json()["sleep_state"] == "paused"


def test_a_thread_without_a_port_has_none_and_one_of_ours_is_none(daemon: DaemonProcess) -> None:
    for key, port in (("none", None), ("broker", 9000)):
        thread = resolve(daemon, key, port=port)["thread"]
        assert [thread[name] for name in ("preview_url", "preview_token", "preview_expires_at")] == [None, None, None]


def test_the_configuration_names_a_port_for_all() -> None:
    settings = {"driver": "process", "thread_preview_port": OTHER}
    with DaemonProcess(**settings) as plain, SyncClient(plain.url, plain.key) as client:
        thread = client.thread("configured")
        found = thread.resolve()
        assert found.thread.preview_url is not None
        assert found.thread.preview_url.startswith(f"http://{OTHER}--ses-")
        assert thread.info().preview_token == found.thread.preview_token
        assert found.thread.preview_token is not None and found.thread.preview_token not in repr(found)
        assert list(found.urls) == ["terminal"]
        named = thread.resolve(options={"preview_port": 3000}).thread.preview_url
        assert named is not None and named.startswith("http://3000--ses-")
