"""Sleeping sessions on real sandboxes: what stands still, what is kept, what wakes them, and what they cost."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.sdk import SyncClient
from support.api import Api, Json, body, code
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.machine.machine import (
    assert_no_trace,
    containers,
    control_groups,
    init_pid,
    loop_devices,
    mounts,
    state_of,
)

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(reap_interval_seconds=0.3, disk_limit_mb=64) as process:
        process.keep_port()
        yield process


@pytest.fixture
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.fixture
def session_id(api: Api) -> Iterator[str]:
    made = str(api.create()["id"])
    yield made
    api.destroy(made)


def sleep(api: Api, session_id: str, verb: str) -> Json:
    return body(api.call("POST", f"/v1/sessions/{session_id}/{verb}"), 200)


def test_frozen_and_let_go_on(api: Api, session_id: str) -> None:
    api.exec(session_id, f"A=kept; cd /tmp; {COUNTER}")
    asleep = sleep(api, session_id, "pause")
    assert (asleep["status"], asleep["paused_as"]) == ("paused", "frozen")
    assert sleep(api, session_id, "pause")["status"] == "paused"
    assert api.status(session_id) == "paused"  # looking does not wake it
    woken = sleep(api, session_id, "resume")
    assert (woken["status"], woken["paused_as"], woken["restored"]) == ("active", None, "memory")
    assert sleep(api, session_id, "resume")["restored"] is None
    first = int(api.out(session_id, "cat /workspace/count"))
    wait_for(lambda: int(api.out(session_id, "cat /workspace/count") or 0) > first, "the counter goes on")
    assert api.out(session_id, "echo $A $PWD") == "kept /tmp"


def test_any_use_wakes_it_and_all_share_one_wake_up(daemon: DaemonProcess, api: Api, session_id: str) -> None:
    for verb in ("pause", "hibernate"):
        sleep(api, session_id, verb)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: api.out(session_id, f"echo {n}", shell=f"s{n}"), range(8)))
        assert answers == [str(n) for n in range(8)]
        sleep(api, session_id, verb)
        api.write(session_id, "/workspace/file", "x")
        sleep(api, session_id, verb)
        assert api.read(session_id, "/workspace/file")[0] == b"x"
        sleep(api, session_id, verb)
        with SyncClient(daemon.url, daemon.key) as client:
            session = client.get_session(session_id)
            assert [chunk.text for chunk in session.exec_stream("echo streamed")] == ["streamed\n"]
            session.pause() if verb == "pause" else session.hibernate()
            assert session.processes.start("true").wait().exit_code == 0


STATE = r"""
cd /tmp; umask 027; plain=one; export EXPORTED=two; declare -a list=(a "b c"); declare -A map=([k]=v)
greet() { echo "hello $1"; }; alias ll='ls -l'; set -o pipefail; shopt -s extglob; echo data > /workspace/file
"""
TOLD = 'pwd; umask; echo $plain $(printenv EXPORTED) "${list[1]}" ${map[k]}; greet you; alias ll; shopt extglob'


def test_stopped_with_files_and_shells_kept(daemon: DaemonProcess, api: Api, session_id: str) -> None:
    api.exec(session_id, STATE)
    api.exec(session_id, "other=shell", shell="second")
    before = api.out(session_id, TOLD)
    api.exec(session_id, "sleep 1000 &")
    pid = init_pid(daemon, session_id)
    asleep = sleep(api, session_id, "hibernate")
    assert (asleep["status"], asleep["paused_as"]) == ("paused", "files")
    # It holds no process and no memory: nothing of it is left on this machine but its files.
    assert session_id not in containers(daemon)
    assert list(control_groups(session_id)) == []
    assert [where for where in mounts(str(daemon.state_dir)) if session_id in where] == []
    assert [one for one in loop_devices(str(daemon.state_dir)) if session_id in one] == []
    assert state_of(pid) in ("", "Z")
    daemon.restart()
    with Api(daemon) as api:
        assert api.status(session_id) == "paused"
        woken = sleep(api, session_id, "restore")
        assert (woken["id"], woken["restored"]) == (session_id, "files")
        assert api.out(session_id, TOLD) == before
        assert api.out(session_id, "echo $other", shell="second") == "shell"
        assert api.out(session_id, "cat /workspace/file; pgrep -c sleep || true") == "data\n0"
        api.destroy(session_id)
        assert_no_trace(daemon, session_id)


def test_environment_and_a_writable_root_come_back(api: Api) -> None:
    made = api.create(env={"FROM": "create"}, writable_root=True)["id"]
    api.exec(made, "echo mine > /usr/local/share/mine")
    sleep(api, made, "hibernate")
    assert api.out(made, "cat /usr/local/share/mine; echo $FROM; id -u") == "mine\ncreate\n0"
    api.destroy(made)


def test_who_is_in_use_stays_awake(api: Api, session_id: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        line = "touch /workspace/begun; until [ -e /workspace/go ]; do sleep 0.05; done"
        running = pool.submit(api.exec, session_id, line)
        wait_for(lambda: api.try_read(session_id, "/workspace/begun").status_code == 200, "it runs")
        for verb in ("pause", "hibernate"):
            assert code(api.call("POST", f"/v1/sessions/{session_id}/{verb}"), 409) == "conflict"
        api.write(session_id, "/workspace/go", "")
        assert running.result()["exit_code"] == 0
    assert api.status(session_id) == "active"


def test_by_itself(api: Api) -> None:
    policy = {"pause_after_seconds": 0.5, "hibernate_after_seconds": 0.5, "destroy_after_seconds": 1}
    made = api.create(sleep=policy)["id"]
    assert api.session(made)["sleep"] == policy
    api.exec(made, "A=1")
    wait_for(lambda: api.session(made)["paused_as"] == "frozen", "idle: frozen")
    assert api.out(made, "echo $A") == "1"
    wait_for(lambda: api.session(made)["paused_as"] == "files", "frozen for a while: stopped")
    assert api.out(made, "echo $A") == "1"
    wait_for(lambda: api.status(made) == "destroyed", "stopped for a while: destroyed")
    assert api.session(made)["reason"] == "expired"
    told = body(api.call("GET", "/v1/events", params={"follow": "false", "session_id": made}), 200)["events"]
    kinds = [event["kind"] for event in told]
    assert kinds[:4] == ["created", "active", "paused", "resumed"] and kinds[-2:] == ["expired", "destroyed"]


def test_many_rounds_lose_nothing(api: Api, session_id: str) -> None:
    api.exec(session_id, "head -c 10000000 /dev/urandom > big; sha256sum big > sum; n=0")
    for count in range(1, 101):
        sleep(api, session_id, "pause")
        assert api.out(session_id, "n=$((n+1)); echo $n") == str(count)
    for count in range(101, 151):
        sleep(api, session_id, "hibernate")
        assert api.out(session_id, "n=$((n+1)); echo $n; sha256sum -c --quiet sum") == str(count)


def test_destroyed_in_its_sleep(daemon: DaemonProcess, api: Api) -> None:
    for verb in ("pause", "hibernate"):
        made = api.create()["id"]
        api.exec(made, "sleep 1000 &")
        sleep(api, made, verb)
        assert api.destroy(made).status_code == 204
        assert code(api.try_exec(made, "true"), 410) == "session_gone"
        assert_no_trace(daemon, made)


def test_no_room_for_the_shells(daemon: DaemonProcess, api: Api, session_id: str) -> None:
    """It says so, and the session goes on."""
    kept = daemon.state_dir / "asleep"
    kept.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(kept)], check=True)
    try:
        api.exec(session_id, "A=1; big=$(head -c 100000 /dev/zero | tr '\\0' x)")
        assert code(api.call("POST", f"/v1/sessions/{session_id}/hibernate"), 413) == "disk_full"
        assert api.status(session_id) == "active"
        assert api.out(session_id, "echo $A ${#big}") == "1 100000"
    finally:
        subprocess.run(["umount", str(kept)], check=True)
