"""P1, P3: the daemon dies while it makes a session. The same key still gives exactly one session."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from support.api import Api, new_key, wait_for_tick
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import HeldRuntime, assert_no_trace, containers

MOMENTS_MS = [(0, 40, 120), (5, 20, 80), (10, 60, 200), (40, 40, 40)]
"""How long before the kill each of some creates is sent."""
AT_ONCE = 3


def create_and_die(daemon: DaemonProcess, keys: list[str], *ages_ms: int) -> None:
    """Send a create with each key, so long before the daemon is killed."""
    daemon.kill_amid([partial(_create_or_fail, daemon, key) for key in keys], ages_ms)


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


@pytest.mark.parametrize("ages_ms", MOMENTS_MS, ids=str)
def test_killed_some_time_after_the_request(daemon: DaemonProcess, ages_ms: tuple[int, ...]) -> None:
    keys = [new_key() for _ in ages_ms]
    create_and_die(daemon, keys, *ages_ms)
    daemon.start()
    assert_one_each(daemon, keys)


def test_killed_again_and_again(daemon: DaemonProcess) -> None:
    """The next daemon dies too, while it finishes what the one before has left."""
    keys = [new_key() for _ in range(AT_ONCE)]
    create_and_die(daemon, keys, *[50] * AT_ONCE)
    for _ in range(2):
        daemon.start()
        create_and_die(daemon, keys, *[30] * AT_ONCE)
    daemon.start()
    assert_one_each(daemon, keys)


def test_unasked_the_next_daemon_finishes_what_was_begun(daemon: DaemonProcess) -> None:
    """No client comes back: a create that has a row still ends as a working session."""
    key = new_key()
    create_and_die(daemon, [key], 80)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: all(one["status"] == "active" for one in api.sessions()), "no create is half done")
    assert_one_each(daemon, [key])


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
    for age_ms in (30, 100):
        key = new_key()
        with DaemonProcess(reap_interval_seconds=0.5, disk_limit_mb=512) as process:
            create_and_die(process, [key], age_ms)
            process.start()
            assert_one_each(process, [key])
