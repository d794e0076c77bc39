"""P1, P3: the daemon dies while it makes a session. The same key still gives exactly one session."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from support.api import Api, new_key, wait_for_tick
from support.daemon import DaemonProcess, wait_for
from support.machine import HeldRuntime, assert_no_trace, containers

MOMENTS_MS = (0, 5, 10, 20, 40, 60, 80, 120, 200)
AT_ONCE = 3


def create_and_die(daemon: DaemonProcess, keys: list[str], wait: float) -> None:
    """Send a create with each key; kill the daemon ``wait`` seconds after."""
    with ThreadPoolExecutor(len(keys)) as pool:
        sent = [pool.submit(_create_or_fail, daemon, key) for key in keys]
        time.sleep(wait)  # this is the fault's moment, not a guess at when something is done
        daemon.kill()
        for one in sent:
            one.result()


def _create_or_fail(daemon: DaemonProcess, key: str) -> None:
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.post("/v1/sessions", json={}, headers={"Idempotency-Key": key})


def assert_one_each(daemon: DaemonProcess, keys: list[str]) -> None:
    """Each key leads to one active session that works; there is no other; destroyed, they leave nothing."""
    with Api(daemon) as api:
        with ThreadPoolExecutor(len(keys)) as pool:
            first = list(pool.map(lambda key: api.create(key), keys))
        ids = sorted(session["id"] for session in first)
        assert len(set(ids)) == len(keys)
        for session, key in zip(first, keys, strict=True):
            assert session["status"] == "active", session
            assert api.out(session["id"], "echo alive; pwd").split() == ["alive", "/workspace"]
            assert api.create(key)["id"] == session["id"]
        assert sorted(session["id"] for session in api.sessions()) == ids
        assert containers(daemon) == ids
        for session_id in ids:
            assert api.destroy(session_id).status_code == 204
        assert_no_trace(daemon, *ids)


@pytest.mark.parametrize("moment_ms", MOMENTS_MS)
def test_killed_some_time_after_the_request(daemon: DaemonProcess, moment_ms: int) -> None:
    keys = [new_key() for _ in range(AT_ONCE)]
    create_and_die(daemon, keys, moment_ms / 1000)
    daemon.start()
    assert_one_each(daemon, keys)


def test_killed_again_and_again(daemon: DaemonProcess) -> None:
    """The next daemon dies too, while it finishes what the one before has left."""
    keys = [new_key() for _ in range(AT_ONCE)]
    create_and_die(daemon, keys, 0.05)
    for _ in range(2):
        daemon.start()
        create_and_die(daemon, keys, 0.03)
    daemon.start()
    assert_one_each(daemon, keys)


def test_unasked_the_next_daemon_finishes_what_was_begun(daemon: DaemonProcess) -> None:
    """No client comes back: a create that has a row still ends as a working session."""
    key = new_key()
    create_and_die(daemon, [key], 0.08)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: all(one["status"] == "active" for one in api.sessions()), "no create is half done")
    assert_one_each(daemon, [key])


@pytest.fixture
def held(usable: None, tmp_path: Path) -> Iterator[tuple[DaemonProcess, HeldRuntime]]:
    runtime = HeldRuntime(tmp_path)
    with DaemonProcess(runtime=str(runtime.path), reap_interval_seconds=0.5, disk_limit_mb=64) as process:
        yield process, runtime


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_the_runtime_starts_the_sandbox(held: tuple[DaemonProcess, HeldRuntime], moment: str) -> None:
    """The runtime outlives the daemon that called it, and goes on when the next daemon is long at work."""
    daemon, runtime = held
    key = new_key()
    runtime.hold("run", moment)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_create_or_fail, daemon, key)
        runtime.wait_held("run", moment)
        daemon.kill()
        sent.result()
    daemon.start()
    with Api(daemon) as api:
        session = api.create(key)
        assert session["status"] == "active", session
        runtime.release("run", moment)
        assert api.out(session["id"], "echo alive") == "alive"
        wait_for_tick(api)
        assert api.status(session["id"]) == "active"
    assert_one_each(daemon, [key])


def test_an_orphaned_runtime_overtakes_the_next_daemon(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    """The old call goes on at the very moment in which the new daemon is about to make the same call."""
    daemon, runtime = held
    key = new_key()
    runtime.hold("run", "before")
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_create_or_fail, daemon, key)
        runtime.wait_held("run", "before")
        daemon.kill()
        sent.result()
    orphan_go = runtime.path.parent / "go-run-before"
    runtime.hold("delete", "after")  # the new daemon has removed the leftovers and is about to make them anew
    daemon.start(wait=False)
    runtime.wait_held("delete", "after")
    orphan_go.touch()
    runtime.release("delete", "after")
    daemon.wait_ready()
    assert_one_each(daemon, [key])


def test_the_very_first_create_of_a_new_installation(usable: None) -> None:
    """There is no empty disk to copy yet: it is made in the first create, and must not be left half made."""
    for wait in (0.03, 0.1):
        key = new_key()
        with DaemonProcess(reap_interval_seconds=0.5, disk_limit_mb=512) as process:
            create_and_die(process, [key], wait)
            process.start()
            assert_one_each(process, [key])
