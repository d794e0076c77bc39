"""P1, P2: the daemon dies while a command runs. The command runs on, once, and its result is there for the next one."""

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from support.api import Api, Json, body, new_key
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import init_pid

STEPS = 20
HALF = 10
LONG = f"""
for i in $(seq {STEPS}); do
  echo $i >> /workspace/log; echo tick $i; echo tock $i >&2; sleep 0.05
  while [ $i = {HALF} ] && [ ! -e /workspace/go ]; do sleep 0.05; done
done
LATE=kept; cd /tmp; (exit 7)
"""
"""Makes progress, and waits half-way for a word from the test."""
TICKS = "".join(f"tick {i}\n" for i in range(1, STEPS + 1))


def go_on(daemon: DaemonProcess, session_id: str) -> None:
    with Api(daemon) as api:
        api.write(session_id, "/workspace/go", "")


def start(pool: ThreadPoolExecutor, daemon: DaemonProcess, session_id: str, cmd: str, key: str) -> Future[Any]:
    """Send a command whose answer will never come."""

    def run() -> None:
        with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
            api.http.post(f"/v1/sessions/{session_id}/exec", json={"cmd": cmd}, headers={"Idempotency-Key": key})

    return pool.submit(run)


def progress(api: Api, session_id: str) -> int:
    response = api.try_read(session_id, "/workspace/log")
    return 0 if response.status_code == 404 else len(api.read(session_id, "/workspace/log")[0].split())


def wait_for_progress(daemon: DaemonProcess, session_id: str, steps: int) -> None:
    with Api(daemon) as api:
        wait_for(lambda: progress(api, session_id) >= steps, f"the command has made {steps} steps")


def assert_done_once(result: Json) -> None:
    assert result["stdout"] == TICKS
    assert result["stderr"] == TICKS.replace("tick", "tock")
    assert (result["exit_code"], result["cwd"], result["timed_out"]) == (7, "/tmp", False)
    assert not result["truncated"] and not result["shell_restarted"]


@pytest.mark.parametrize("kills", [1, 2])
def test_the_result_is_delivered_by_the_next_daemon(daemon: DaemonProcess, kills: int) -> None:
    key = new_key()
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "export EARLY=1; f() { echo from-f; }; sleep 1000 & echo $! > /workspace/pid")
    before = init_pid(daemon, session_id)
    with ThreadPoolExecutor(1) as pool:
        sent = start(pool, daemon, session_id, LONG, key)
        for kill in range(kills):
            wait_for_progress(daemon, session_id, 2 + 2 * kill)
            daemon.kill()
            sent.result()
            daemon.start()
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.exec, session_id, LONG, key)
        wait_for_progress(daemon, session_id, HALF)
        assert not waiting.done()
        go_on(daemon, session_id)
        again = waiting.result()
        assert_done_once(again)
        assert body(api.try_result(session_id, again["exec_id"]), 200) == again
        assert api.exec(session_id, LONG, key) == again
        assert progress(api, session_id) == STEPS
        # the same shell in the same sandbox: state, job and files
        assert api.out(session_id, "echo $EARLY $LATE $PWD; f; jobs -r | wc -l; kill -0 $(cat /workspace/pid)") == (
            "1 kept /tmp\nfrom-f\n1"
        )
        assert init_pid(daemon, session_id) == before
        assert api.session(session_id)["cwd"] == "/tmp"


def test_nobody_asks_until_it_is_over(daemon: DaemonProcess) -> None:
    """The command ends while there is no daemon at all."""
    key = new_key()
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create()["id"]
        sent = start(pool, daemon, session_id, LONG, key)
        wait_for_progress(daemon, session_id, 2)
        pid = init_pid(daemon, session_id)
        daemon.kill()
        sent.result()
    workspace = daemon.state_dir / "oci" / session_id / "disk" / "workspace"
    (workspace / "go").touch()
    wait_for(lambda: len((workspace / "log").read_text().split()) == STEPS, "the command has ended without a daemon")
    daemon.start()
    with Api(daemon) as api:
        assert init_pid(daemon, session_id) == pid
        assert_done_once(api.exec(session_id, LONG, key))
        assert progress(api, session_id) == STEPS


def test_a_command_that_was_never_received_is_simply_run(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
    daemon.restart()
    with Api(daemon) as api:
        assert api.out(session_id, "echo first") == "first"
        assert api.try_result(session_id, "exe_never").status_code == 404


def test_queued_commands_run_once_and_in_order(daemon: DaemonProcess) -> None:
    """Commands that waited behind the running one when the daemon died: sent again, each runs once."""
    keys = [new_key() for _ in range(4)]
    commands = [f"sleep 0.5; echo {number} >> /workspace/order" for number in range(4)]
    with Api(daemon) as api:
        session_id = api.create()["id"]
    with ThreadPoolExecutor(4) as pool:
        sent = [start(pool, daemon, session_id, cmd, key) for cmd, key in zip(commands, keys, strict=True)]
        with Api(daemon) as api:
            wait_for(
                lambda: api.try_read(session_id, "/workspace/order").status_code == 200, "the first command has ended"
            )
        daemon.kill()
        for one in sent:
            one.result()
    daemon.start()
    with Api(daemon) as api:
        for cmd, key in zip(commands, keys, strict=True):
            assert api.exec(session_id, cmd, key)["exit_code"] == 0
        assert sorted(api.out(session_id, "cat /workspace/order").split()) == ["0", "1", "2", "3"]


def test_a_timeout_holds_without_a_daemon(daemon: DaemonProcess) -> None:
    """P2: the command's time is kept in the sandbox, so it ends even if the daemon stays away."""
    key = new_key()
    with Api(daemon) as api:
        session_id = api.create()["id"]
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(_exec_or_fail, daemon, session_id, key)
            wait_for(lambda: api.try_read(session_id, "/workspace/begun").status_code == 200, "the command has begun")
            daemon.kill()
            sent.result()
    daemon.start()
    with Api(daemon) as api:
        result = api.exec(session_id, ENDLESS, key, timeout_ms=1500)
        assert result["timed_out"] and result["stdout"] == "some\n"
        assert result["duration_ms"] < 20_000
        assert api.out(session_id, "echo $STATE") == "kept"


ENDLESS = "STATE=kept; echo some; touch /workspace/begun; sleep 1000"


def _exec_or_fail(daemon: DaemonProcess, session_id: str, key: str) -> None:
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.post(
            f"/v1/sessions/{session_id}/exec",
            json={"cmd": ENDLESS, "timeout_ms": 1500},
            headers={"Idempotency-Key": key},
        )


def test_told_to_stop_it_lets_sessions_live(daemon: DaemonProcess) -> None:
    """SIGTERM in the middle of a command: a graceful end, and nothing else differs."""
    key = new_key()
    with Api(daemon) as api:
        session_id = api.create()["id"]
    with ThreadPoolExecutor(1) as pool:
        sent = start(pool, daemon, session_id, LONG, key)
        wait_for_progress(daemon, session_id, 2)
        daemon.stop()
        sent.result()
    assert not (daemon.state_dir / "daemon.json").exists(), "a stopped daemon still says where it is"
    assert "Traceback" not in daemon.tail()
    daemon.start()
    go_on(daemon, session_id)
    with Api(daemon) as api:
        assert_done_once(api.exec(session_id, LONG, key))
        assert progress(api, session_id) == STEPS
        assert api.status(session_id) == "active"


def test_killed_in_the_middle_of_a_file(daemon: DaemonProcess) -> None:
    """A file is written as a whole or not at all, and no half of it stays behind."""
    size = 40 << 20
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.write(session_id, "/workspace/file", "old")

    def write() -> None:
        with Api(daemon) as other, contextlib.suppress(httpx2.HTTPError):
            other.http.post(
                f"/v1/sessions/{session_id}/fs/write",
                params={"path": "/workspace/file"},
                content=bytes(size),
                headers={"Content-Type": "application/octet-stream"},
            )

    workspace = daemon.state_dir / "oci" / session_id / "disk" / "workspace"
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(write)
        wait_for(lambda: len(list(workspace.iterdir())) > 1 or sent.done(), "the new content begins to arrive")
        daemon.kill()
        sent.result()
    daemon.start()
    with Api(daemon) as api:
        assert api.out(session_id, "stat -c %s file", cwd="/workspace") in ("3", str(size))
        wait_for(lambda: api.out(session_id, "ls -A /workspace") == "file", "nothing else is there")
