"""P3: what nobody uses goes away by itself, and nothing that is used does."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from support.api import Api, Json, code
from support.daemon import DaemonProcess, wait_for
from support.machine import assert_no_trace

TICKS = 1.5
"""Seconds in which the reaper certainly has come by twice; used only to prove that it did nothing."""


def seconds_left(session: Json) -> float:
    times = [datetime.fromisoformat(session[name]) for name in ("expires_at", "last_activity_at")]
    return (times[0] - times[1]).total_seconds()


def test_unused_it_expires(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create(ttl_seconds=1)["id"]
        wait_for(lambda: api.status(session_id) == "destroyed", "it has expired")
        assert api.session(session_id)["reason"] == "expired"
        for refused in (
            api.try_exec(session_id, "true"),
            api.try_read(session_id, "/etc/passwd"),
            api.try_write(session_id, "/tmp/x", "x"),
            api.try_result(session_id, "exe_any"),
        ):
            assert code(refused, 410) == "session_gone"
        assert api.destroy(session_id).status_code == 204
        assert_no_trace(daemon, session_id)


def test_looking_at_it_is_no_use_of_it(daemon: DaemonProcess) -> None:
    """A monitor that lists sessions must not keep them all alive."""
    with Api(daemon) as api:
        session_id = api.create(ttl_seconds=2)["id"]
        began = time.monotonic()
        wait_for(
            lambda: api.status(session_id) == "destroyed" and not api.sessions(), "it expires though it is watched"
        )
        assert time.monotonic() - began > 1


def test_each_use_extends_it_by_its_own_time(daemon: DaemonProcess) -> None:
    """Exec, write and read alike; by the time that this session was made with, not by the daemon's default."""
    with Api(daemon) as api:
        session = api.create(ttl_seconds=3)
        other = api.create(ttl_seconds=600)
        assert (session["ttl_seconds"], other["ttl_seconds"]) == (3, 600)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            api.exec(session["id"], "true")
            time.sleep(0.3)
            api.write(session["id"], "/tmp/x", "x")
            time.sleep(0.3)
            api.read(session["id"], "/tmp/x")
            time.sleep(0.3)
        now = api.session(session["id"])
        assert now["status"] == "active", now
        assert 2.5 < seconds_left(now) < 3.5
        assert now["expires_at"] > session["expires_at"]
        api.exec(other["id"], "true")
        assert 599 < seconds_left(api.session(other["id"])) < 601
        wait_for(lambda: api.status(session["id"]) == "destroyed", "left alone it expires")
        assert api.status(other["id"]) == "active"


def test_a_long_command_is_use(daemon: DaemonProcess) -> None:
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create(ttl_seconds=1)["id"]
        running = pool.submit(api.exec, session_id, "sleep 4; echo done")
        assert running.result()["stdout"] == "done\n"
        assert api.out(session_id, "echo still here") == "still here"


def test_a_long_command_is_use_also_for_the_next_daemon(daemon: DaemonProcess) -> None:
    """The daemon dies under a long command; whoever asks for its result keeps the session alive again."""
    with Api(daemon) as api:
        session_id = api.create(ttl_seconds=30)["id"]
        before = api.exec(session_id, "echo once", "the-key")
    daemon.restart()
    with Api(daemon) as api:
        earlier = api.session(session_id)["expires_at"]
        assert api.exec(session_id, "echo once", "the-key") == before
        assert api.session(session_id)["expires_at"] > earlier
        assert 29 < seconds_left(api.session(session_id)) < 31


def test_activity_survives_a_kill(daemon: DaemonProcess) -> None:
    """What was used a while before the kill is not reaped by the next daemon for having been made long ago."""
    with Api(daemon) as api:
        session_id = api.create(ttl_seconds=6)["id"]
        made = time.monotonic()
        row = api.session(session_id)["expires_at"]
        time.sleep(3)
        api.exec(session_id, "true")
        assert api.session(session_id)["expires_at"] > row
        time.sleep(TICKS)  # activity is written down once a second
    daemon.kill()
    daemon.start()
    with Api(daemon) as api:
        time.sleep(max(0.0, made + 7 - time.monotonic()))
        assert api.status(session_id) == "active"


def test_what_expired_without_a_daemon_goes_when_there_is_one(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create(ttl_seconds=1)["id"]
    daemon.kill()
    time.sleep(1.2)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "destroyed", "it has expired")
        assert api.session(session_id)["reason"] == "expired"
        assert_no_trace(daemon, session_id)
