"""P3: what nobody uses goes away by itself, and nothing that is used does."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta

from support.api import Api, Json, code
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import assert_no_trace

TICKS = timedelta(seconds=1.5)
"""In which the reaper certainly has come by; used only to prove that it did nothing."""
TTL = 6
"""Seconds: short enough to wait for, long enough that a busy machine does not take as long between two calls."""


def seconds_left(session: Json) -> float:
    times = [datetime.fromisoformat(session[name]) for name in ("expires_at", "last_activity_at")]
    return (times[0] - times[1]).total_seconds()


def stored_expiry(daemon: DaemonProcess, session_id: str) -> float:
    """What the next daemon would go by."""
    with closing(sqlite3.connect(f"file:{daemon.state_dir}/holdfast.db?mode=ro", uri=True)) as database:
        [(found,)] = database.execute("SELECT expires_at FROM sessions WHERE id = ?", [session_id])
    return float(found)


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
        began = time.monotonic()
        session_id = api.create(ttl_seconds=2)["id"]
        wait_for(
            lambda: api.status(session_id) == "destroyed" and not api.sessions(), "it expires though it is watched"
        )
        assert time.monotonic() - began > 1.9


def test_each_use_extends_it_by_its_own_time(daemon: DaemonProcess) -> None:
    """Exec, write and read alike; by the time that this session was made with, not by the daemon's default."""
    with Api(daemon) as api:
        session = api.create(ttl_seconds=TTL)
        other = api.create(ttl_seconds=600)
        assert (session["ttl_seconds"], other["ttl_seconds"]) == (TTL, 600)
        latest = session["expires_at"]
        uses = (
            lambda: api.exec(session["id"], "true"),
            lambda: api.write(session["id"], "/tmp/x", "x"),
            lambda: api.read(session["id"], "/tmp/x"),
        )
        while datetime.now(UTC) < datetime.fromisoformat(session["expires_at"]) + TICKS:
            for use in uses:
                use()
                now = api.session(session["id"])
                assert now["status"] == "active", now
                assert TTL - 0.5 < seconds_left(now) < TTL + 0.5
                assert now["expires_at"] > latest
                latest = now["expires_at"]
                time.sleep(0.2)  # somebody who comes now and then
        api.exec(other["id"], "true")
        assert 599 < seconds_left(api.session(other["id"])) < 601
        wait_for(lambda: api.status(session["id"]) == "destroyed", "left alone it expires")
        assert api.status(other["id"]) == "active"


def test_a_long_command_is_use(daemon: DaemonProcess) -> None:
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create(ttl_seconds=TTL)["id"]
        running = pool.submit(api.exec, session_id, f"sleep {TTL + 2}; echo done")
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
        session_id = api.create(ttl_seconds=600)["id"]
        made = stored_expiry(daemon, session_id)
        api.exec(session_id, "true")
        used = datetime.fromisoformat(api.session(session_id)["expires_at"])
        wait_for(lambda: stored_expiry(daemon, session_id) > made, "activity is written down")
    daemon.kill()
    daemon.start()
    with Api(daemon) as api:
        assert abs(datetime.fromisoformat(api.session(session_id)["expires_at"]) - used) < timedelta(milliseconds=1)


def test_what_expired_without_a_daemon_goes_when_there_is_one(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        made = api.create(ttl_seconds=1)
        session_id, ends = made["id"], datetime.fromisoformat(made["expires_at"])
    daemon.kill()
    wait_for(lambda: datetime.now(UTC) > ends, "its time passes, and nobody is there to see it")
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "destroyed", "it has expired")
        assert api.session(session_id)["reason"] == "expired"
        assert_no_trace(daemon, session_id)
