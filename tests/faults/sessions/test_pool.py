"""The warm pool on real sandboxes: the daemon dies at the worst moments; no sandbox is given out twice or leaked."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from support.api import Api, new_key, wait_for_tick
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import HeldRuntime, assert_no_trace, containers, init_pid, mounts

SIZE = 3
AT_ONCE = 5
MOMENTS_MS = [(0, 4, 8, 15, 60), (2, 6, 10, 25, 60), (6, 6, 6, 6, 6)]
"""How long before the kill each of some creates is sent."""
SETTINGS = {"pool": {"host": SIZE}, "reap_interval_seconds": 0.5, "disk_limit_mb": 64}


@pytest.fixture(scope="module")
def shared_daemon(usable: None) -> Iterator[DaemonProcess]:
    with DaemonProcess(**SETTINGS) as process:
        yield process


def pooled(daemon: DaemonProcess) -> set[str]:
    """The sandboxes that are nobody's, by the runtime and not by what the daemon says."""
    with Api(daemon) as api:
        return set(containers(daemon)) - {session["id"] for session in api.sessions()}


def full_pool(daemon: DaemonProcess) -> set[str]:
    wait_for(lambda: ready(daemon) == SIZE, f"the pool is full:\n{daemon.tail()}")
    return pooled(daemon)


def ready(daemon: DaemonProcess, image: str = "host") -> int:
    with Api(daemon) as api:
        lines = api.http.get("/metrics").text.splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f'holdfast_pool_ready{{image="{image}"}}')]
    return int(float(value))


def create(daemon: DaemonProcess, key: str) -> str | None:
    """The id; None if the daemon died over it. The environment says whose it is."""
    with Api(daemon) as api:
        try:
            answer = api.http.post("/v1/sessions", json={"env": {"KEY": key}}, headers={"Idempotency-Key": key})
        except httpx2.HTTPError:
            return None
        return str(answer.json()["id"]) if answer.status_code == 201 else None


def assert_fresh(api: Api, session_id: str, key: str) -> None:
    """It has its own environment, and nobody was here before."""
    seen = api.exec(session_id, "echo $KEY $SANDBOX_ID $PWD; ls -A /workspace /tmp; echo $key > /workspace/mine")
    assert seen["stdout"].split() == [key, session_id, "/workspace", "/tmp:", "/workspace:"], seen
    assert not seen["shell_restarted"]


def test_a_create_takes_a_sandbox_that_is_ready(daemon: DaemonProcess) -> None:
    waiting = full_pool(daemon)
    with Api(daemon) as api:
        assert len(waiting) == SIZE and api.sessions() == []
        before = time.time()
        key = new_key()
        session = api.create(key, env={"KEY": key}, metadata={"a": "b"}, ttl_seconds=77)
        assert session["id"] in waiting
        assert (session["status"], session["metadata"], session["ttl_seconds"]) == ("active", {"a": "b"}, 77)
        assert session["created_at"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before))
        assert_fresh(api, session["id"], key)
        assert api.create(key, env={"KEY": key}, metadata={"a": "b"}, ttl_seconds=77)["id"] == session["id"]
        assert api.create(limits={"pids": 99})["id"] not in waiting
        again = full_pool(daemon)
        assert session["id"] not in again
        for _ in range(2):  # a tick that is under way may have looked already; the second one has not
            doomed = api.create(ttl_seconds=1, limits={"pids": 99})["id"]
            wait_for(lambda: api.status(doomed) == "destroyed", "a session of one second is reaped by a tick")  # noqa: B023
        assert pooled(daemon) - {session["id"]} == again, "a tick takes none of them for strays"
        api.destroy(session["id"])
        assert session["id"] not in containers(daemon)


def test_the_environment_is_that_of_a_session_made_with_it(daemon: DaemonProcess) -> None:
    """Also for variables that a running bash would treat in its own way."""
    odd = {"PATH": "/nowhere:/usr/bin", "IFS": "x", "LC_ALL": "C", "SHLVL": "7", "EMPTY": "", "POSIXLY_CORRECT": "1"}
    with Api(daemon) as api:
        full_pool(daemon)
        warm = api.create(env=odd)["id"]
        cold = api.create(env=odd, limits={"pids": 99})["id"]
        drop = "grep -v -e SANDBOX_ID -e __hf -e HOSTNAME"
        look = f"export -p | {drop}; printf '%q' \"$IFS\"; set +o; shopt -p"
        assert api.out(warm, look) == api.out(cold, look)


def test_killed_with_a_full_pool(daemon: DaemonProcess) -> None:
    """The next daemon gives none of them out, and leaves none behind."""
    old = full_pool(daemon)
    daemon.restart()
    assert not old & set(containers(daemon))
    new = full_pool(daemon)
    assert len(new) == SIZE and not old & new
    assert not [path for path in daemon.state_dir.glob("oci/ses_*") if path.name in old]
    assert not [mount for mount in mounts(str(daemon.state_dir)) for one in old if one in mount]


@pytest.mark.parametrize("ages_ms", MOMENTS_MS, ids=str)
def test_killed_while_sandboxes_are_claimed(daemon: DaemonProcess, ages_ms: tuple[int, ...]) -> None:
    """Each key gets one session, of its own and new; what was in the pool and not claimed is gone."""
    old = full_pool(daemon)
    keys = [new_key() for _ in range(AT_ONCE)]
    answers = daemon.kill_amid([partial(create, daemon, key) for key in keys], ages_ms)
    daemon.start()
    with Api(daemon) as api:
        for key, answered in zip(keys, answers, strict=True):
            session_id = api.create(key, env={"KEY": key})["id"]
            assert answered in (None, session_id), "who was told an id gets it again"
            assert_fresh(api, session_id, key)
        ids = {session["id"] for session in api.sessions()}
        assert len(ids) == AT_ONCE
        full_pool(daemon)
        assert not (old - ids) & set(containers(daemon)), "what was not claimed is gone"
        assert not ids & pooled(daemon)


@pytest.fixture
def held(usable: None, tmp_path: Path) -> Iterator[tuple[DaemonProcess, HeldRuntime]]:
    runtime = HeldRuntime(tmp_path)
    runtime.hold("run", "before")
    with DaemonProcess(**SETTINGS, runtime=str(runtime.path)) as process:
        yield process, runtime


def test_killed_while_it_refills(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    """The runtime outlives the daemon that called it, and makes a sandbox that nobody waits for."""
    daemon, runtime = held
    runtime.wait_held("run", "before")
    [doomed] = [path.name for path in daemon.state_dir.glob("oci/ses_*")]
    daemon.kill()
    daemon.start()
    runtime.release("run", "before")
    full_pool(daemon)
    with Api(daemon) as api:
        wait_for_tick(api)
    assert doomed not in containers(daemon)
    assert not (daemon.state_dir / "oci" / doomed).exists()


def test_a_refill_does_not_hold_up_a_caller(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    daemon, runtime = held
    runtime.wait_held("run", "before")
    with Api(daemon) as api:
        session_id = api.create()["id"]
        assert api.out(session_id, "echo meanwhile") == "meanwhile"
    runtime.release("run", "before")
    full_pool(daemon)


def test_one_that_dies_while_it_waits_is_replaced(daemon: DaemonProcess) -> None:
    waiting = full_pool(daemon)
    doomed = waiting.pop()
    os.kill(init_pid(daemon, doomed), signal.SIGKILL)
    wait_for(lambda: doomed not in containers(daemon), "the dead one is removed")
    assert waiting <= full_pool(daemon)


def test_one_that_does_not_answer_is_not_given_out(daemon: DaemonProcess) -> None:
    frozen = full_pool(daemon)
    pids = [init_pid(daemon, one) for one in frozen]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with Api(daemon) as api:
        session_id = api.create()["id"]
        assert session_id not in frozen
        assert api.out(session_id, "echo works") == "works"
    daemon.restart()  # the others are stopped still, and must be removable all the same
    assert not frozen & set(containers(daemon))


def test_an_image_that_comes_and_is_replaced(usable: None, tmp_path: Path) -> None:
    """Until it is there the refill fails and is tried again; sandboxes of its old tree are given to nobody."""
    for name in ("etc", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/nothing").touch(0o755)

    def import_(text: str) -> None:
        (tmp_path / "etc/motd").write_text(text)
        wish = {"name": "tiny", "source": str(tmp_path), "replace": True}
        assert api.call("POST", "/v1/images", json=wish).status_code == 201

    settings = {**SETTINGS, "pool": {"tiny": 1}}
    with DaemonProcess(**settings) as daemon, Api(daemon) as api:
        wait_for(lambda: "pool.refill.failed" in daemon.log.read_text(), "a refill without an image fails")
        import_("old")
        wait_for(lambda: len(pooled(daemon)) == 1 and ready(daemon, "tiny") == 1, "then there is one")
        [old] = pooled(daemon)
        import_("new")
        session_id = api.create(image="tiny")["id"]
        assert session_id != old
        assert api.read(session_id, "/etc/motd") == (b"new", False)
        wait_for(lambda: old not in containers(daemon) and ready(daemon, "tiny") == 1, "the old one is replaced")
        taken = api.create(image="tiny", env={"A": "b"})["id"]
        assert api.read(taken, "/etc/motd") == (b"new", False)
        assert api.out(taken, "echo $A") == "b", "in an image without a shell of its own"


def test_an_orderly_stop_leaves_nothing(usable: None) -> None:
    with DaemonProcess(**SETTINGS) as daemon:
        old = full_pool(daemon)
        daemon.stop()
        daemon._settings["pool"] = {}
        for one in old:
            assert not (daemon.state_dir / "oci" / one).exists()
        daemon.start()
        assert "reconcile.stray.removed" not in daemon.log.read_text()
        assert_no_trace(daemon, *old)
