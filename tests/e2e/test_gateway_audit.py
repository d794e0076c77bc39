"""The audit log: who made a way in, by which key, who used it, and nothing that would let anybody else in."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.visitor import NAVIGATES, Site, cookie_of
from support.waiting import wait_for


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(public_links=True, log_format="json") as process:
        yield process


def lines(daemon: DaemonProcess, event: str, least: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def there() -> bool:
        text = daemon.log.read_text()
        every = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        found[:] = [line for line in every if line["event"] == event]
        return len(found) >= least

    wait_for(there, f"{least} lines {event}", 20)
    return found


def test_links_previews_and_who_came_in_by_them(daemon: DaemonProcess) -> None:
    with daemon.client(60) as client:
        made = client.post("/v1/keys", json={"name": "bot", "scope": "use", "owner": "ann"}).json()
        key = made["key"]
        as_bot = {"Authorization": f"Bearer {key}"}
        options = {"options": {"preview_port": 3000}}
        thread = client.post("/v1/threads/audited/resolve", json=options, headers=as_bot).json()["thread"]
        site = Site(daemon, thread["session_id"])
        link = site.link(key=key, name="for-ada")
        public = site.link(key=key, public=True, name="for-all")
        cookie = cookie_of(site.hand_in(link["url"]))
        token = thread["preview_token"]
        other = cookie_of(site.ask(f"/?token={token}", headers=NAVIGATES))
        for one in (cookie, other):
            site.go("/", cookie=one)
        site.by_key(key=key)
        site.ask(host=public["url"].split("/")[2])
        site.ask("/")
        shown = {"session_id": site.session_id, "key": "bot", "owner": "ann"}
        for line, label, whom in zip(
            lines(daemon, "gateway.link", 2), ("3000", "3000"), ("for-ada", "for-all"), strict=True
        ):
            assert {name: line[name] for name in (*shown, "label", "visitor")} == {
                **shown,
                "label": label,
                "visitor": whom,
            }
        [preview] = lines(daemon, "gateway.preview", 1)
        assert {name: preview[name] for name in (*shown, "label")} == {**shown, "label": "3000"}
        came = [(line["by"], line["key"], line["visitor"]) for line in lines(daemon, "gateway.entered", 2)]
        assert came == [("link", "bot", "for-ada"), ("token", "bot", "ann")]
        used = [(line["by"], line["key"], line["visitor"]) for line in lines(daemon, "gateway.opened", 4)]
        assert used == [
            ("visit", "bot", "for-ada"),
            ("visit", "bot", "ann"),
            ("key", "bot", "ann"),
            ("link", "bot", "for-all"),
        ]
        assert [line["code"] for line in lines(daemon, "gateway.refused", 1)] == ["unauthorized"]
        query = {"follow": "false", "session_id": site.session_id, "kind": "gateway.opened,gateway.refused"}
        wait_for(lambda: len(client.get("/v1/events", params=query).json()["events"]) == 5, "all are events", 20)
        told = client.get("/v1/events", params=query).text
        metrics = client.get("/metrics").text
    ticket, secret = link["url"].partition("#ticket=")[2], public["url"].partition("//p-")[2].partition("--")[0]
    for hidden in (key, token, ticket, secret, cookie.partition("=")[2], other.partition("=")[2]):
        assert hidden and hidden not in daemon.log.read_text() + told + metrics
