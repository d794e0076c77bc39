"""Names for ports, as people use them: over sleep, kills of the daemon and new sandboxes of a thread; and the verbs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.visitor import Site, open_site, serve
from support.waiting import wait_for


@pytest.fixture(scope="module")
def mortal() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(agents=["scripted"]) as process:
        process.keep_port()
        yield process


def names(site: Site) -> dict[str, int]:
    return {one["name"]: one["port"] for one in site.api("GET", "/tunnels").json()["tunnels"]}


def run_verb(daemon: DaemonProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    program = str(Path(sys.executable).with_name("holdfast"))
    env = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    return subprocess.run([program, *words], capture_output=True, text=True, env=env, timeout=60)


def put(site: Site, name: str, port: int = 3000) -> Any:
    return site.api("POST", "/tunnels", {"name": name, "port": port})


def try_to_put(site: Site, name: str, port: int) -> int | None:
    """None: there was no answer."""
    try:
        return int(put(site, name, port).status_code)
    except httpx2.TransportError:
        return None


def test_a_name_survives_a_kill_amid_changes(mortal: DaemonProcess) -> None:
    """What was answered is there, what was not is there as a whole or not at all, and its events say the same."""
    site = open_site(mortal)
    assert put(site, "web").status_code == 201
    cookie = site.enter("web")
    calls = [partial(try_to_put, site, f"t{number}", 4000 + number) for number in range(20)]
    answered = mortal.kill_amid(calls, range(0, 100, 5))
    mortal.restart()
    found = names(site)
    assert found["web"] == 3000
    done = [number for number, status in enumerate(answered) if status == 201]
    assert all(found[f"t{number}"] == 4000 + number for number in done)
    with mortal.client() as client:
        page = client.get(
            "/v1/events", params={"follow": "false", "session_id": site.session_id, "kind": "tunnels", "limit": 1000}
        ).json()
    told = page["events"][-1]["data"]["tunnels"]
    assert {one["name"]: one["port"] for one in told} == found
    assert len(page["events"]) == len(found), "each change once"
    wait_for(lambda: site.go("/page", cookie=cookie, label="web").status_code == 200, "it is let in again", 30)
    site.api("DELETE", "")


def test_a_name_stays_over_sleep_and_goes_with_the_session(mortal: DaemonProcess) -> None:
    site = open_site(mortal)
    put(site, "web")
    cookie = site.enter("web")
    assert site.api("POST", "/pause").status_code == 200
    assert names(site) == {"web": 3000}
    wait_for(lambda: site.go("/page", cookie=cookie, label="web").status_code == 200, "a click wakes it", 30)
    with mortal.client() as client:
        shown = client.get(f"/v1/sessions/{site.session_id}").json()["urls"]
    assert shown == {"terminal": site.origin("terminal") + "/", "web": site.origin("web") + "/"}
    site.api("DELETE", "")
    assert site.go("/page", cookie=cookie, label="web").status_code in (401, 404, 410)


def test_fifty_and_no_more_however_many_ask(mortal: DaemonProcess) -> None:
    with mortal.client() as client:
        site = Site(mortal, client.post("/v1/sessions", json={}).json()["id"])
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda number: put(site, f"t{number}").status_code, range(60)))
    assert (statuses.count(201), statuses.count(429)) == (50, 10)
    assert len(names(site)) == 50
    assert site.api("DELETE", f"/tunnels/{next(iter(names(site)))}").status_code == 204
    assert put(site, "again").status_code == 201
    site.api("DELETE", "")


def test_a_new_session_has_its_addresses_at_once(mortal: DaemonProcess) -> None:
    with SyncClient(mortal.url, mortal.key) as client:
        session = client.create_session()
        assert list(session.info.urls) == ["terminal"]
        session.tunnels.put("web", 3000)
        assert list(session.refresh().info.urls) == ["terminal", "web"]
        session.pause()
        assert list(session.info.urls) == ["terminal", "web"], "what does not tell leaves it as it was"
        copy = session.fork()
        assert copy.tunnels.list() == [] and list(copy.refresh().info.urls) == ["terminal"]
        for one in (session, copy):
            one.destroy()


def test_the_next_sandbox_of_a_thread_has_the_names(mortal: DaemonProcess) -> None:
    with SyncClient(mortal.url, mortal.key) as client:
        thread = client.thread("renewed")
        first = thread.resolve()
        client.get_session(first.session_id).tunnels.put("web", 3000)
        old = Site(mortal, first.session_id)
        serve(old)
        cookie = old.enter("web")
        assert old.go("/page", cookie=cookie, label="web").status_code == 200
        client.get_session(first.session_id).destroy()
        mortal.kill()
        mortal.restart()
        second = thread.resolve()
        assert second.how == "recreated" and list(second.urls) == ["terminal", "web"]
        site = Site(mortal, second.session_id)
        assert second.urls["web"] == site.origin("web") + "/"
        serve(site)
        assert site.fetch("/page", cookie=cookie, label="web").status_code == 401, "the old way in is not one to it"
        assert site.go("/page", cookie=site.enter("web"), label="web").status_code == 200
        told = [one for one in thread.events(follow=False) if one.kind == "tunnels"]
        assert [one.data["session_id"] for one in told] == [first.session_id, second.session_id]
        assert told[-1].data["tunnels"] == [{"name": "web", "port": 3000, "host": None}]
        thread.delete()


def test_the_verbs(mortal: DaemonProcess) -> None:
    with SyncClient(mortal.url, mortal.key) as client:
        found = client.thread("verbs").resolve(options={"preview_port": 3000})
        site = Site(mortal, found.session_id)
        assert run_verb(mortal, "tunnel", "put", "verbs", "web", "3000").stdout.strip() == site.origin("web") + "/"
        run_verb(mortal, "tunnel", "put", found.session_id, "api", "8000", "--host", "rewrite")
        listed = json.loads(run_verb(mortal, "--json", "tunnel", "ls", "verbs").stdout)["tunnels"]
        assert [(one["name"], one["port"], one["host"]) for one in listed] == [
            ("api", 8000, "rewrite"),
            ("web", 3000, None),
        ]
        assert "web\t3000\t-\t" in run_verb(mortal, "tunnel", "ls", "verbs").stdout
        assert run_verb(mortal, "tunnel", "rm", "verbs", "api").stdout == "api\n"
        gone = run_verb(mortal, "tunnel", "rm", "verbs", "api")
        assert gone.returncode == 1 and "no tunnel api" in gone.stderr
        serve(site)
        for words, label in ((["verbs"], "3000"), (["verbs", "web"], "web"), (["verbs", "3000"], "3000")):
            link = run_verb(mortal, "open", *words, "--print").stdout.strip()
            assert link.startswith(site.origin(label))
            assert site.hand_in(link).status_code == 303
        shown = run_verb(mortal, "thread", "show", "verbs").stdout
        assert f"preview url: {site.origin()}/" in shown and "preview token: (with --json)" in shown
        client.thread("bare").resolve()
        bare = run_verb(mortal, "open", "bare", "--print")
        assert bare.returncode == 1 and "--preview-port" in bare.stderr
        none = run_verb(mortal, "open", found.session_id, "--print")
        assert none.returncode == 1 and "is no thread" in none.stderr
