"""Services of a session: started when somebody wants them, once; followed; stopped when nobody is connected."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.errors import ServiceFailed
from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.kiosk import busybox, open_kiosk, put_image, run, service
from support.gateway.visitor import Site
from support.waiting import wait_for

CALLERS = 50


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    if busybox() is None:
        pytest.skip("SERVICES ARE NOT TESTED: install the package 'busybox-static'")
    with DaemonProcess() as process:
        process.keep_port()
        put_image(process)
        yield process


@pytest.fixture
def kiosk(daemon: DaemonProcess) -> Iterator[Site]:
    site = open_kiosk(daemon)
    yield site
    site.api("DELETE", "")


def start(site: Site, name: str) -> httpx2.Response:
    return site.api("POST", f"/services/{name}")


def started(site: Site, name: str) -> dict[str, Any]:
    answer = start(site, name)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["state"] == "ready", found
    return found


def error(answer: httpx2.Response) -> dict[str, str]:
    found: dict[str, str] = answer.json()["error"]
    return found


def state(site: Site, name: str) -> str:
    found: str = service(site, name)["state"]
    return found


def starts(site: Site) -> int:
    """How often the page was started, as it wrote itself."""
    return run(site, "cat ~/starts").count("started")


def kinds(site: Site, name: str) -> list[str]:
    """What was told of a service."""
    with site.daemon.client() as client:
        asked: dict[str, str | int] = {"session_id": site.session_id, "limit": 1000, "follow": "false"}
        events = client.get("/v1/events", params=asked).json()["events"]
    return [event["kind"] for event in events if event["data"].get("service") == name]


def log_of(site: Site, name: str, offset: int = 0) -> dict[str, Any]:
    answer = site.api("GET", f"/services/{name}/log?offset={offset}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def kill(site: Site, name: str, signal: str = "KILL") -> None:
    process = service(site, name)["process_id"]
    assert site.api("POST", f"/processes/{process}/signal", {"signal": signal}).status_code == 204


# -- starting and stopping ---------------------------------------------------------------------------------------------


def test_a_service_is_started_looked_at_and_stopped(kiosk: Site) -> None:
    before = service(kiosk, "web")
    assert (before["state"], before["port"], before["title"]) == ("stopped", 8000, "A page")
    assert before["started_at"] is None and before["process_id"] is None
    assert before["url"] == kiosk.origin("web") + "/"
    found = started(kiosk, "web")
    assert found["started_at"] and found["process_id"].startswith("prc_")
    assert kiosk.by_key("/index.html", host=kiosk.host("web")).text == "<h1>the page of a service</h1>"
    assert started(kiosk, "web") == found, "the same again changes nothing"
    log = log_of(kiosk, "web")
    assert "".join(chunk["text"] for chunk in log["chunks"]) == "listening\n"
    assert log_of(kiosk, "web", log["next_offset"])["chunks"] == []
    assert kiosk.api("DELETE", "/services/web").status_code == 204
    after = service(kiosk, "web")
    assert (after["state"], after["reason"], after["started_at"]) == ("stopped", "it was stopped on request", None)
    assert kiosk.api("DELETE", "/services/web").status_code == 204, "stopped already is fine"
    assert log_of(kiosk, "web")["chunks"], "what it wrote can still be read"
    wait_for(lambda: len(kinds(kiosk, "web")) == 3, "all is told")
    assert kinds(kiosk, "web") == ["service.started", "service.ready", "service.stopped"]


def test_many_who_want_it_at_once_get_one_process(kiosk: Site) -> None:
    with ThreadPoolExecutor(CALLERS) as pool:
        found = [one.result() for one in [pool.submit(started, kiosk, "web") for _ in range(CALLERS)]]
    assert len({one["process_id"] for one in found}) == 1
    assert starts(kiosk) == 1
    assert sum(one["running"] for one in kiosk.api("GET", "/processes").json()["processes"]) == 1


def test_what_a_killed_one_leaves_behind_is_no_obstacle(kiosk: Site) -> None:
    first = started(kiosk, "web")
    kill(kiosk, "web")
    wait_for(lambda: state(kiosk, "web") == "failed", "its death is noticed")
    assert "ended by SIGKILL (exit code 137)" in service(kiosk, "web")["reason"]
    assert run(kiosk, "ls ~ 2>/dev/null || echo ~/*").find("web.lock") >= 0, "its lock is still there"
    again = started(kiosk, "web")
    assert again["started_at"] != first["started_at"] and starts(kiosk) == 2
    wait_for(lambda: "service.failed" in kinds(kiosk, "web"), "its death is told")


def test_a_child_that_a_killed_one_leaves_behind_is_no_obstacle(kiosk: Site) -> None:
    started(kiosk, "family")
    kill(kiosk, "family", "KILL")
    wait_for(lambda: state(kiosk, "family") == "failed", "its death is noticed")
    started(kiosk, "family")
    pid = kiosk.api("GET", f"/processes/{service(kiosk, 'family')['process_id']}").json()["pid"]
    run(kiosk, f"kill -9 {pid}")  # of the parent alone: its child would keep the port
    wait_for(lambda: state(kiosk, "family") == "failed", "its death is noticed")
    started(kiosk, "family")


def test_one_that_does_not_listen_to_term_is_killed(kiosk: Site) -> None:
    started(kiosk, "deaf")
    assert kiosk.api("DELETE", "/services/deaf").status_code == 204
    assert state(kiosk, "deaf") == "stopped"
    assert not [one for one in kiosk.api("GET", "/processes").json()["processes"] if one["running"]]
    started(kiosk, "deaf")


def test_a_port_that_is_taken_is_said(kiosk: Site) -> None:
    taken = kiosk.api("POST", "/processes", {"argv": ["httpd", "-f", "-p", "127.0.0.1:8003", "-h", "/www"]})
    assert taken.status_code == 201
    wait_for(lambda: 8003 in [one["port"] for one in kiosk.api("GET", "/ports").json()["ports"]], "it is taken")
    answer = start(kiosk, "brief")
    assert answer.status_code == 502 and "something else in the sandbox answers at its port 8003" in answer.text
    assert state(kiosk, "brief") == "failed"
    assert kiosk.api("DELETE", f"/processes/{taken.json()['process_id']}").status_code == 204
    started(kiosk, "brief")


def test_a_stop_ends_a_start(kiosk: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, kiosk, "slow")
        wait_for(lambda: state(kiosk, "slow") == "starting", "it is on its way")
        assert kiosk.api("DELETE", "/services/slow").status_code == 204
        answer = starting.result()
    assert answer.status_code == 409 and "stopped" in error(answer)["message"]
    assert state(kiosk, "slow") == "stopped"
    assert not [one for one in kiosk.api("GET", "/processes").json()["processes"] if one["running"]]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_one_that_dies_at_once_says_why(kiosk: Site) -> None:
    answer = start(kiosk, "dies")
    assert (answer.status_code, error(answer)["code"]) == (502, "service_failed")
    message = error(answer)["message"]
    assert "ended by itself with exit code 7" in message
    assert "going up" in message and "no screen found" in message
    found = service(kiosk, "dies")
    assert found["state"] == "failed" and "no screen found" in found["reason"]
    assert "no screen found" in str(log_of(kiosk, "dies"))


def test_one_that_does_not_answer_is_given_up_in_time(kiosk: Site) -> None:
    began = time.monotonic()
    answer = start(kiosk, "mute")
    assert (answer.status_code, error(answer)["code"]) == (502, "service_failed")
    assert "did not answer at port 8002 within 1 s" in answer.text and "waiting for nothing" in answer.text
    assert time.monotonic() - began < 30
    assert not [one for one in kiosk.api("GET", "/processes").json()["processes"] if one["running"]]
    wrong = start(kiosk, "wrong")
    assert wrong.status_code == 502 and "with a success to GET /none within 1 s" in wrong.text


def test_one_that_takes_all_memory_says_so(daemon: DaemonProcess) -> None:
    site = open_kiosk(daemon, limits={"memory_mb": 64})
    with daemon.client() as client:
        if client.get(f"/v1/sessions/{site.session_id}/stats").json()["memory_limit_bytes"] is None:
            pytest.skip("memory is not limited here")
    answer = start(site, "hungry")
    assert answer.status_code == 502 and "the session had no memory left" in answer.text
    site.api("DELETE", "")


def test_one_that_needs_more_memory_than_there_is_is_refused(kiosk: Site) -> None:
    answer = start(kiosk, "heavy")
    assert (answer.status_code, error(answer)["code"]) == (409, "service_needs_memory")
    assert "at least 64000 MB" in answer.text and state(kiosk, "heavy") == "stopped"


def test_one_that_keeps_failing_is_left_alone_until_it_is_stopped(kiosk: Site) -> None:
    codes = [error(start(kiosk, "dies"))["code"] for _ in range(7)]
    assert codes == ["service_failed"] * 5 + ["service_keeps_failing"] * 2
    last = error(start(kiosk, "dies"))["message"]
    assert "DELETE" in last and "no screen found" in last
    assert kiosk.api("DELETE", "/services/dies").status_code == 204
    assert error(start(kiosk, "dies"))["code"] == "service_failed"


def test_names_that_there_are_not(kiosk: Site) -> None:
    for answer in (start(kiosk, "ide"), kiosk.api("DELETE", "/services/ide"), kiosk.api("GET", "/services/ide/log")):
        assert (answer.status_code, error(answer)["code"]) == (404, "service_not_found")
    assert "it has: web, dies" in error(start(kiosk, "ide"))["message"]
    nobody = Site(kiosk.daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
    assert start(nobody, "web").status_code == 404


def test_the_terminal_is_always_there(kiosk: Site) -> None:
    found = service(kiosk, "terminal")
    assert (found["state"], found["port"], found["process_id"]) == ("ready", None, None)
    assert started(kiosk, "terminal")["name"] == "terminal"
    assert kiosk.api("DELETE", "/services/terminal").status_code == 422
    assert kiosk.api("GET", "/services/terminal/log").status_code == 422


# -- idle --------------------------------------------------------------------------------------------------------------


def test_one_that_nobody_uses_is_stopped_and_the_session_is_none_the_busier(kiosk: Site) -> None:
    started(kiosk, "brief")
    used = kiosk.api("GET", "").json()["last_activity_at"]
    wait_for(lambda: state(kiosk, "brief") == "stopped", "it is stopped")
    assert service(kiosk, "brief")["reason"] == "nobody was connected for 2 s"
    assert kiosk.api("GET", "").json()["last_activity_at"] == used, "to keep watch is no use of the session"
    wait_for(lambda: "service.stopped" in kinds(kiosk, "brief"), "it is told")


def test_one_that_somebody_is_connected_to_is_not(kiosk: Site, daemon: DaemonProcess) -> None:
    started(kiosk, "brief")
    with SyncClient(daemon.url, api_key=daemon.key) as client:
        session = client.get_session(kiosk.session_id)
        with session.ports.forward(8003) as there, socket.create_connection((there.host, there.port)):
            until = time.monotonic() + 5
            while time.monotonic() < until:
                assert state(kiosk, "brief") == "ready"
                time.sleep(0.2)
        began = time.monotonic()
        wait_for(lambda: state(kiosk, "brief") == "stopped", "it is stopped when the last one has left")
        assert time.monotonic() - began > 1


def test_requests_keep_it(kiosk: Site) -> None:
    started(kiosk, "brief")
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert kiosk.by_key("/", host=kiosk.host("brief")).status_code == 200
        time.sleep(0.5)
    assert kinds(kiosk, "brief").count("service.started") == 1


# -- daemons and sleep -------------------------------------------------------------------------------------------------


def test_the_next_daemon_finds_it_and_starts_no_second_one(kiosk: Site, daemon: DaemonProcess) -> None:
    web, slow = started(kiosk, "web"), None
    started(kiosk, "brief")
    daemon.restart()
    assert started(kiosk, "web") == web and starts(kiosk) == 1
    assert state(kiosk, "web") == "ready", "it answers"
    wait_for(lambda: state(kiosk, "brief") == "stopped", "the next daemon stops what nobody uses")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_start_or_none, kiosk, "slow")
        wait_for(lambda: state(kiosk, "slow") == "starting", "it is on its way")
        daemon.restart()
        starting.result()
    slow = started(kiosk, "slow")
    assert slow["state"] == "ready" and run(kiosk, "cat ~/slow").count("slow") == 1
    kill(kiosk, "web")
    wait_for(lambda: state(kiosk, "web") == "failed", "its death is noticed")
    daemon.restart()
    wait_for(lambda: state(kiosk, "web") == "failed", "the next daemon sees that it has died")
    assert "SIGKILL" in service(kiosk, "web")["reason"]


def _start_or_none(site: Site, name: str) -> httpx2.Response | None:
    try:
        return start(Site(site.daemon, site.session_id), name)
    except httpx2.HTTPError:
        return None


def test_after_a_sleep_with_files_it_is_stopped_and_starts_again(kiosk: Site) -> None:
    started(kiosk, "web")
    assert kiosk.api("POST", "/hibernate", {"as": "files"}).status_code == 200
    asleep = service(kiosk, "web")
    assert (asleep["state"], asleep["reason"]) == ("stopped", "the session is asleep")
    assert kiosk.api("GET", "").json()["status"] == "paused", "to look wakes nothing"
    assert kiosk.api("DELETE", "/services/web").status_code == 204, "nor does a stop"
    assert kiosk.api("GET", "").json()["status"] == "paused"
    again = started(kiosk, "web")
    assert again["state"] == "ready" and starts(kiosk) == 2, "its lock was on the disk"
    assert kiosk.api("POST", "/hibernate", {"as": "files"}).status_code == 200
    assert kiosk.api("POST", "/resume").status_code == 200
    assert state(kiosk, "web") == "stopped"


def test_a_freeze_leaves_it_as_it_is(kiosk: Site) -> None:
    web = started(kiosk, "web")
    frozen = kiosk.api("POST", "/pause")
    if frozen.status_code == 409:
        pytest.skip("sessions cannot be frozen here")
    assert state(kiosk, "web") == "stopped", "nothing runs in a session that stands still"
    assert kiosk.api("POST", "/resume").status_code == 200
    assert started(kiosk, "web") == web and starts(kiosk) == 1


# -- through the gateway -----------------------------------------------------------------------------------------------


def test_going_to_its_page_starts_it_and_a_request_in_the_background_does_not(kiosk: Site) -> None:
    cookie = kiosk.enter("web")
    host = kiosk.host("web")
    for method in ("GET", "POST"):
        origin = {"Origin": f"http://{host}"}
        answer = kiosk.fetch("/index.html", cookie=cookie, host=host, method=method, headers=origin)
        assert (answer.status_code, error(answer)["code"]) == (503, "service_stopped")
        assert answer.headers["retry-after"] == "1"
    assert state(kiosk, "web") == "stopped"

    def is_there() -> bool:
        answer = kiosk.go("/index.html", cookie=cookie, host=host)
        assert answer.status_code == 200 or "Starting" in answer.text, answer.text
        return "the page of a service" in answer.text

    wait_for(is_there, "the page of ours goes on by itself")
    assert starts(kiosk) == 1
    assert kiosk.fetch("/index.html", cookie=cookie, host=host).status_code == 200


def test_who_waits_for_it_sees_a_page_that_goes_on_by_itself(kiosk: Site) -> None:
    cookie, host = kiosk.enter("slow"), kiosk.host("slow")
    began = time.monotonic()
    answer = kiosk.go("/", cookie=cookie, host=host)
    assert answer.status_code == 503 and "Starting" in answer.text
    assert "location.reload()" in answer.text and answer.headers["retry-after"] == "1"
    assert time.monotonic() - began < 2
    wait_for(lambda: kiosk.go("/", cookie=cookie, host=host).status_code == 200, "it is there")
    assert run(kiosk, "cat ~/slow").count("slow") == 1


def test_who_goes_to_one_that_fails_sees_it_and_does_not_start_it_on_and_on(kiosk: Site) -> None:
    cookie, host = kiosk.enter("dies"), kiosk.host("dies")
    wait_for(lambda: kiosk.go("/", cookie=cookie, host=host).status_code == 502, "it has failed")
    page = kiosk.go("/", cookie=cookie, host=host)
    assert page.status_code == 502 and "did not start" in page.text and "no screen" not in page.text
    assert kinds(kiosk, "dies").count("service.started") == 1


def test_a_request_with_a_key_starts_it_also_of_a_session_that_sleeps(kiosk: Site) -> None:
    assert kiosk.api("POST", "/hibernate", {"as": "files"}).status_code == 200
    answer = kiosk.by_key("/index.html", host=kiosk.host("web"))
    assert answer.status_code == 200 and "the page of a service" in answer.text


def test_a_websocket_of_a_forgotten_tab_does_not_start_it(kiosk: Site) -> None:
    cookie, host = kiosk.enter("web"), kiosk.host("web")
    shake = {
        "Cookie": cookie,
        "Origin": f"http://{host}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = kiosk.ask("/ws", host=host, headers=shake)
    assert (answer.status_code, error(answer)["code"]) == (503, "service_stopped")
    assert state(kiosk, "web") == "stopped"


def test_its_name_is_taken(kiosk: Site) -> None:
    for name in ("web", "ide", "terminal"):
        answer = kiosk.api("POST", "/tunnels", {"name": name, "port": 3000})
        assert (answer.status_code, error(answer)["code"]) == (422, "bad_input")
    missing = kiosk.by_key("/", host=kiosk.host("ide"))
    assert (missing.status_code, error(missing)["code"]) == (404, "service_not_found")


def test_the_sdk_does_all_of_it(kiosk: Site, daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, api_key=daemon.key) as client:
        session = client.get_session(kiosk.session_id)
        assert "web" in [one.name for one in session.services.list()]
        info = session.services.start("web")
        assert (info.state, info.url) == ("ready", kiosk.origin("web") + "/")
        assert b"".join(chunk.data for chunk in session.services.log("web")) == b"listening\n"
        session.services.stop("web")
        assert session.services.list()[0].state == "stopped"
        with pytest.raises(ServiceFailed, match="no screen found"):
            session.services.start("dies")


def test_the_command_line_does_all_of_it(kiosk: Site, daemon: DaemonProcess) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    program = str(Path(sys.executable).with_name("holdfast"))

    def cli(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([program, *words], capture_output=True, text=True, env=env, timeout=60, check=False)

    def ok(*words: str) -> str:
        done = cli(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    id = kiosk.session_id
    assert "web" in ok("service", "ls", id) and "stopped" in ok("service", "ls", id)
    assert ok("service", "start", id, "web").strip() == kiosk.origin("web") + "/"
    listed = json.loads(ok("--json", "service", "ls", id))["services"]
    assert [one["state"] for one in listed if one["name"] == "web"] == ["ready"]
    assert ok("service", "log", id, "web") == "listening\n"
    ok("service", "stop", id, "web")
    assert state(kiosk, "web") == "stopped"
    link = ok("open", id, "web", "--print").strip()
    assert state(kiosk, "web") == "ready", "to open it starts it"
    assert kiosk.hand_in(link).status_code == 303
    failed = cli("service", "start", id, "dies")
    assert failed.returncode == 1 and "no screen found" in failed.stderr
    assert "failed" in ok("service", "ls", id)
