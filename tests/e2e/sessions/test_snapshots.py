"""Snapshots, forks and workspaces on real sandboxes, also over restarts of the daemon and the death of sandboxes."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.drivers.linux import freezer
from holdfast.drivers.names import machine_name
from holdfast.errors import SnapshotNotFound
from holdfast.sdk import SyncClient
from support.api import Api, Json, body, code
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.machine.machine import HeldRuntime, assert_no_trace, init_pid

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"
STATE = r"""
mkdir -p /workspace/deep; cd /workspace/deep; plain=one; export EXPORTED=two MINE=changed; greet() { echo "hello $1"; }
set -o pipefail; echo data > /workspace/file; ln -s file /workspace/link; chmod 750 /workspace/file
"""
TOLD = "pwd; echo $plain $(printenv EXPORTED) $MINE; greet you; shopt -o pipefail; cat /workspace/link; umask"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> HeldRuntime:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    return HeldRuntime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def daemon(runtime: HeldRuntime) -> Iterator[DaemonProcess]:
    with DaemonProcess(runtime=str(runtime.path), reap_interval_seconds=0.5, disk_limit_mb=64) as process:
        process.keep_port()
        yield process


@pytest.fixture
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api
        daemon.destroy_everything()
        for one in body(api.call("GET", "/v1/snapshots"), 200)["snapshots"]:
            api.call("DELETE", f"/v1/snapshots/{one['id']}")
        for one in body(api.call("GET", "/v1/workspaces"), 200)["workspaces"]:
            api.call("DELETE", f"/v1/workspaces/{one['id']}")
        wait_for(lambda: kept(daemon) == [], f"nothing is left: {kept(daemon)}")


def kept(daemon: DaemonProcess) -> list[str]:
    return [path.name for name in ("snapshots", "workspaces") for path in (daemon.state_dir / name).glob("*_*")]


def post(api: Api, session_id: str, verb: str, status: int = 201, **fields: object) -> Json:
    return body(api.call("POST", f"/v1/sessions/{session_id}/{verb}", json=fields), status)


def test_what_was_deleted_is_not_copied(daemon: DaemonProcess, api: Api) -> None:
    """Neither of a session that runs nor of one that sleeps; and the host has its room back."""
    if os.geteuid() != 0:
        pytest.skip("only root has disks of its own for sessions")
    original = str(api.create(limits={"disk_mb": 256})["id"])
    disk = daemon.state_dir / "oci" / original / "disk.img"
    large = (
        "head -c 150000000 /dev/urandom > /workspace/large; sync -f /workspace; rm /workspace/large; sync -f /workspace"
    )
    api.exec(original, f"head -c 10000000 /dev/urandom > /workspace/kept; {large}")
    assert disk.stat().st_blocks * 512 > 150_000_000
    assert post(api, original, "snapshots")["size_bytes"] < 40_000_000
    assert disk.stat().st_blocks * 512 < 40_000_000
    api.exec(original, large)
    api.call("POST", f"/v1/sessions/{original}/hibernate")
    assert disk.stat().st_blocks * 512 < 40_000_000
    assert post(api, original, "snapshots")["size_bytes"] < 40_000_000
    assert api.out(original, "stat -c %s /workspace/kept") == "10000000"


def test_a_snapshot_and_three_sessions_at_once(daemon: DaemonProcess, api: Api) -> None:
    original = str(api.create(env={"MINE": "given"})["id"])
    api.exec(original, STATE)
    before = api.out(original, TOLD)
    taken = post(api, original, "snapshots", name="base")
    assert (taken["status"], taken["kind"], taken["session_id"]) == ("ready", "files", original)
    assert 0 < taken["size_bytes"] < 64 << 20
    api.exec(original, "echo later > /workspace/file")
    daemon.restart()
    api.destroy(original)
    with ThreadPoolExecutor(3) as pool:
        copies = [one["id"] for one in pool.map(lambda _: api.create(snapshot="base"), range(3))]
    assert [api.out(one, TOLD) for one in copies] == [before] * 3
    assert [api.out(one, "echo $SANDBOX_ID") for one in copies] == copies
    api.exec(copies[0], "echo own > /workspace/file")
    assert api.out(copies[1], "cat /workspace/file") == "data"
    other = api.create(snapshot="base", env={"MINE": "asked"}, limits={"disk_mb": 96, "pids": 50})
    assert (other["limits"]["disk_mb"], other["cwd"]) == (96, "/workspace/deep")
    assert api.out(other["id"], "echo $MINE $plain; cat /workspace/file") == "asked one\ndata"
    assert code(api.try_create(snapshot="base", limits={"disk_mb": 32}), 422) == "bad_input"
    assert body(api.call("GET", "/v1/snapshots/base"), 200)["id"] == taken["id"]
    assert api.call("DELETE", "/v1/snapshots/base").status_code == 204
    assert api.out(copies[2], "cat /workspace/file") == "data"  # who was made from it does not need it


def test_one_that_is_being_used_cannot_be_removed(api: Api, runtime: HeldRuntime) -> None:
    original = str(api.create()["id"])
    post(api, original, "snapshots", name="base")
    runtime.hold("run", "before")
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(api.create, snapshot="base")
        runtime.wait_held("run", "before")
        refused = api.call("DELETE", "/v1/snapshots/base")
        runtime.release("run", "before")
        made = making.result()["id"]
    assert code(refused, 409) == "conflict" and f"session {made} is being made from it" in refused.text
    assert api.call("DELETE", "/v1/snapshots/base").status_code == 204


@pytest.mark.parametrize("asleep", ["", "pause", "hibernate"])
def test_a_fork_of_a_live_one(daemon: DaemonProcess, api: Api, asleep: str) -> None:
    original = api.create(env={"GIVEN": "g"}, metadata={"a": "b"}, ttl_seconds=600)
    first = str(original["id"])
    api.exec(first, STATE)
    api.exec(first, COUNTER)
    api.exec(first, "other=shell", shell="second")
    before = api.out(first, TOLD)
    if asleep:
        post(api, first, asleep, 200)
    copy = post(api, first, "fork")
    assert (copy["forked_from"], copy["restored"], copy["metadata"]) == (first, "files", {"a": "b"})
    assert (copy["ttl_seconds"], copy["cwd"]) == (600, "/workspace/deep")
    if asleep:
        assert api.status(first) == "paused"
    second = str(copy["id"])
    assert api.out(second, TOLD) == before
    assert api.out(second, "echo $GIVEN $SANDBOX_ID") == f"g {second}"
    assert api.out(second, "echo $other", shell="second") == "shell"
    # The files were copied, the counter was not; where it runs it goes on.
    count = api.out(second, "cat /workspace/count")
    if asleep != "hibernate":
        wait_for(lambda: int(api.out(first, "cat /workspace/count") or 0) > int(count or 0) + 3, "it counts on")
    assert api.out(second, "cat /workspace/count") == count
    wait_for(lambda: kept(daemon) == [], "what the fork was made of is gone")


def test_a_fork_while_a_command_runs(api: Api) -> None:
    first = str(api.create()["id"])
    api.exec(first, "cd /tmp; A=before")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            api.exec, first, "cd /workspace; A=after; touch here; while [ ! -e go ]; do sleep 0.05; done"
        )
        wait_for(lambda: api.try_read(first, "/workspace/here").status_code == 200, "the command runs")
        second = str(post(api, first, "fork")["id"])
        assert api.out(second, "echo $A $PWD; ls /workspace") == "before /tmp\nhere"
        api.write(first, "/workspace/go", "")
        assert running.result()["exit_code"] == 0
    assert api.out(first, "echo $A $PWD") == "after /workspace"


def test_a_writable_root_comes_along(api: Api) -> None:
    first = str(api.create(writable_root=True)["id"])
    api.exec(first, "echo mine > /etc/mine; mkdir /opt/tool; rm /etc/hosts; echo x > /tmp/t")
    second = str(post(api, first, "fork")["id"])
    assert api.out(second, "cat /etc/mine /tmp/t; ls -d /opt/tool; [ -e /etc/hosts ] || echo gone") == (
        "mine\nx\n/opt/tool\ngone"
    )
    post(api, first, "snapshots", name="base")
    assert code(api.try_create(snapshot="base", writable_root=False), 422) == "bad_input"


def test_a_workspace_over_two_sessions(daemon: DaemonProcess, api: Api) -> None:
    first = str(api.create(workspace="home")["id"])
    api.exec(first, "echo kept > /workspace/file; echo not > /tmp/file")
    refused = api.try_create(workspace="home")
    assert code(refused, 409) == "conflict" and first in refused.text
    post(api, first, "hibernate", 200)
    assert code(api.try_create(workspace="home"), 409) == "conflict"
    daemon.restart()
    assert code(api.call("DELETE", "/v1/workspaces/home"), 409) == "conflict"
    assert api.out(first, "cat /workspace/file") == "kept"
    copy = str(post(api, first, "fork")["id"])
    assert api.session(copy)["workspace"] is None
    api.exec(copy, "echo copied > /workspace/file")
    api.destroy(first)
    second = str(api.create(workspace="home")["id"])
    assert api.out(second, "cat /workspace/file; [ -e /tmp/file ] || echo none") == "kept\nnone"
    [view] = body(api.call("GET", "/v1/workspaces"), 200)["workspaces"]
    assert (view["session_id"], view["disk_mb"]) == (second, 64) and view["size_bytes"] > 0
    for one in (second, copy):
        api.destroy(one)
    assert_no_trace(daemon, first, second, copy)
    assert api.call("DELETE", "/v1/workspaces/home").status_code == 204


@pytest.mark.parametrize("frozen", [False, True])
def test_what_has_died_is_brought_back_from_its_files(daemon: DaemonProcess, api: Api, frozen: bool) -> None:
    session_id = str(api.create(env={"GIVEN": "g"})["id"])
    api.exec(session_id, "A=kept; cd /tmp; echo data > /workspace/file; sync")
    pid = init_pid(daemon, session_id)
    if frozen:  # as after a reboot: its processes are gone, and so is the daemon that froze them
        post(api, session_id, "pause", 200)
        daemon.kill()
        os.kill(pid, signal.SIGKILL)
        freezer.thaw(machine_name(session_id, daemon.state_dir))
        daemon.start()
    else:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: api.status(session_id) == "error", "the crash is reported")
    refused = api.try_exec(session_id, "true")
    assert code(refused, 409) == "wrong_state" and "restore" in refused.text
    assert code(api.call("POST", f"/v1/sessions/{session_id}/resume"), 409) == "wrong_state"
    back = post(api, session_id, "restore", 200)
    assert (back["id"], back["status"], back["reason"], back["restored"]) == (session_id, "active", None, "files")
    assert api.out(session_id, "cat /workspace/file; echo $GIVEN") == "data\ng"
    # Shells are kept when it is frozen; one that died awake has told nobody of its own.
    assert api.out(session_id, "echo $A $PWD") == ("kept /tmp" if frozen else "/workspace")
    api.destroy(session_id)
    assert_no_trace(daemon, session_id)


def test_by_the_sdk(daemon: DaemonProcess, api: Api) -> None:
    with SyncClient(daemon.url, daemon.key) as client, client.create_session() as session:
        session.exec("A=1; cd /tmp").check()
        snapshot = session.snapshot("base")
        with client.create_session(snapshot="base") as started, session.fork() as copy:
            assert started.info.snapshot_id == snapshot.id
            assert [one.exec("echo $A $PWD").stdout for one in (started, copy)] == ["1 /tmp\n"] * 2
        client.snapshots.remove("base")
        with pytest.raises(SnapshotNotFound):
            client.snapshots.get("base")
