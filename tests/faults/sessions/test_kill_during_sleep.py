"""P1: the daemon dies while it puts a session to sleep or wakes it. It is asleep or awake afterwards, never neither."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import HeldRuntime, assert_no_trace


def ask(daemon: DaemonProcess, session_id: str, verb: str) -> None:
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.post(f"/v1/sessions/{session_id}/{verb}")


def prepared(daemon: DaemonProcess) -> str:
    with Api(daemon) as api:
        made = str(api.create()["id"])
        api.exec(
            made, "A=kept; cd /tmp; head -c 100000 /dev/urandom > /workspace/big; cd /workspace; sha256sum big > sum"
        )
        return made


def assert_whole(daemon: DaemonProcess, session_id: str) -> None:
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) in ("active", "paused"), "asleep or awake")
        assert api.out(session_id, "echo $A $PWD; sha256sum -c --quiet sum") == "kept /workspace"
        api.destroy(session_id)
        assert_no_trace(daemon, session_id)


@pytest.mark.parametrize(("verb", "moment"), [("delete", "before"), ("delete", "after")])
def test_killed_while_it_is_stopped(held: tuple[DaemonProcess, HeldRuntime], verb: str, moment: str) -> None:
    daemon, runtime = held
    session_id = prepared(daemon)
    runtime.hold(verb, moment)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, daemon, session_id, "hibernate")
        runtime.wait_held(verb, moment)
        daemon.kill()
        asking.result()
    runtime.release(verb, moment)
    daemon.start()
    assert_whole(daemon, session_id)


@pytest.mark.parametrize(("verb", "moment"), [("delete", "before"), ("run", "before"), ("run", "after")])
def test_killed_while_it_is_started(held: tuple[DaemonProcess, HeldRuntime], verb: str, moment: str) -> None:
    daemon, runtime = held
    session_id = prepared(daemon)
    ask(daemon, session_id, "hibernate")
    runtime.hold(verb, moment)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, daemon, session_id, "restore")
        runtime.wait_held(verb, moment)
        daemon.kill()
        asking.result()
    runtime.release(verb, moment)
    daemon.start()
    assert_whole(daemon, session_id)


def test_a_wake_that_fails_leaves_it_asleep(held: tuple[DaemonProcess, HeldRuntime], tmp_path: Path) -> None:
    daemon, runtime = held
    session_id = prepared(daemon)
    ask(daemon, session_id, "hibernate")
    script = runtime.path.read_text()
    runtime.path.write_text("#!/bin/sh\necho no runtime today >&2\nexit 1\n")
    with Api(daemon) as api:
        answer = api.try_exec(session_id, "true")
        assert answer.status_code == 503, answer.text
        assert api.session(session_id)["paused_as"] == "files"
        runtime.path.write_text(script)
    assert_whole(daemon, session_id)


def test_a_frozen_session_outlives_the_daemon(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    daemon, _runtime = held
    session_id = prepared(daemon)
    ask(daemon, session_id, "pause")
    daemon.restart()
    with Api(daemon) as api:
        assert api.session(session_id)["paused_as"] == "frozen"
    assert_whole(daemon, session_id)
