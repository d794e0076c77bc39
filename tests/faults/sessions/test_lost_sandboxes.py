"""P2, P3: the sandbox dies, hangs or disappears. Calls end soon, the crash is reported, and the rest can be cleared."""

import asyncio
import os
import shutil
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.images.store import ImageStore
from holdfast.records.limits import Limits, Network
from support.api import Api, body, code, new_key
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import assert_no_trace, containers, delete_container, init_pid, processes_of, state_of

SOON = 25.0
"""Seconds. Far below the timeout of the commands here, which would be the wrong reason to end."""


def exec_in_flight(pool: ThreadPoolExecutor, api: Api, session_id: str) -> Future[httpx2.Response]:
    """A command of 100 seconds that is certainly running."""
    future = pool.submit(api.try_exec, session_id, "touch /workspace/begun; sleep 100", timeout_ms=100_000)
    wait_for(lambda: api.try_read(session_id, "/workspace/begun").status_code == 200, "the command has begun")
    return future


def assert_crashed(api: Api, daemon: DaemonProcess, session_id: str) -> None:
    """Reported as what it is, of no more use, not made anew, and gone without a trace when it is destroyed."""
    wait_for(lambda: api.status(session_id) == "error", "the session is in error")
    session = api.session(session_id)
    assert session["reason"] == "crashed" and session["error"], session
    for refused in (
        api.try_exec(session_id, "true"),
        api.try_read(session_id, "/workspace/begun"),
        api.try_write(session_id, "/workspace/x", "x"),
        api.try_result(session_id, "exe_any"),
    ):
        assert code(refused, 409) == "wrong_state"
    assert api.status(session_id) == "error"
    assert api.destroy(session_id).status_code == 204
    assert api.destroy(session_id).status_code == 204
    gone = api.session(session_id)
    assert (gone["status"], gone["reason"]) == ("destroyed", "crashed")
    assert_no_trace(daemon, session_id)


def test_it_dies_while_a_command_runs(daemon: DaemonProcess) -> None:
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create()["id"]
        running = exec_in_flight(pool, api, session_id)
        began = time.monotonic()
        os.kill(init_pid(daemon, session_id), signal.SIGKILL)
        assert code(running.result(), 502) == "sandbox_lost"
        assert time.monotonic() - began < SOON
        assert_crashed(api, daemon, session_id)


def test_it_dies_slowly_while_a_command_runs(usable: None) -> None:
    """Its memory takes a while to be given back, and until then it is neither alive nor gone. No tick is near."""
    with DaemonProcess(reap_interval_seconds=3600, disk_limit_mb=64, mem_limit_mb=1024) as daemon, Api(daemon) as api:
        with ThreadPoolExecutor(1) as pool:
            session_id = api.create()["id"]
            api.exec(session_id, "(setsid python3 -c 'x = bytearray(700 << 20); import time; time.sleep(999)' &)")
            running = exec_in_flight(pool, api, session_id)
            began = time.monotonic()
            os.kill(init_pid(daemon, session_id), signal.SIGKILL)
            assert code(running.result(), 502) == "sandbox_lost"
            assert time.monotonic() - began < SOON
        assert_crashed(api, daemon, session_id)


def test_every_waiting_call_ends(daemon: DaemonProcess) -> None:
    """Also those that only queue for their turn, and those that ask for a result."""
    with Api(daemon) as api, ThreadPoolExecutor(4) as pool:
        session_id = api.create()["id"]
        running = exec_in_flight(pool, api, session_id)
        queued = [pool.submit(api.try_exec, session_id, "true") for _ in range(2)]
        os.kill(init_pid(daemon, session_id), signal.SIGKILL)
        assert code(running.result(timeout=SOON), 502) == "sandbox_lost"
        for one in queued:
            assert one.result(timeout=SOON).status_code in (409, 502)
        assert_crashed(api, daemon, session_id)


def test_it_runs_out_of_memory(daemon: DaemonProcess) -> None:
    """The kernel takes the runner itself: whoever asks is told that it was memory, and not just that it is gone."""
    with Api(daemon) as api:
        session_id = api.create(limits={"memory_mb": 64})["id"]
        pid = init_pid(daemon, session_id)
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # the first one to go
        response = api.try_exec(session_id, "head -c 200M /dev/zero | tail -c 200M | wc -c", timeout_ms=20_000)
        assert code(response, 502) == "sandbox_lost"
        wait_for(lambda: api.status(session_id) == "error", "the crash is noticed")
        assert "memory" in api.session(session_id)["error"]
        assert_crashed(api, daemon, session_id)


def test_it_dies_while_nothing_runs(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        os.kill(init_pid(daemon, session_id), signal.SIGKILL)
        assert_crashed(api, daemon, session_id)


def test_it_dies_while_there_is_no_daemon(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        untouched = api.create()["id"]
        api.exec(untouched, "X=1")
    pid = init_pid(daemon, session_id)
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: state_of(pid) in ("", "Z", "X"), "it is dead")
    daemon.start()
    with Api(daemon) as api:
        assert api.status(session_id) == "error"
        assert api.out(untouched, "echo $X") == "1"
        api.destroy(untouched)
        assert_crashed(api, daemon, session_id)


@pytest.mark.parametrize("with_daemon", [True, False])
def test_it_is_deleted_behind_our_back(daemon: DaemonProcess, with_daemon: bool) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "echo precious > /workspace/file")
    if not with_daemon:
        daemon.kill()
    delete_container(daemon, session_id)
    if not with_daemon:
        daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "error", "it is noticed")
        assert containers(daemon) == [], "it was made anew behind its owner's back"
        assert_crashed(api, daemon, session_id)


def test_it_hangs(usable: None) -> None:
    """The runner is stopped: it is there, and says nothing. The call ends by its deadline; destroy works."""
    settings = {"max_exec_timeout_ms": 2000, "reap_interval_seconds": 0.5, "disk_limit_mb": 64}
    with DaemonProcess(**settings) as daemon, Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "sleep 1000 &")
        pid = init_pid(daemon, session_id)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        assert code(api.try_exec(session_id, "true", timeout_ms=500), 502) == "sandbox_lost"
        assert time.monotonic() - began < 30
        assert api.destroy(session_id).status_code == 204
        assert_no_trace(daemon, session_id)


def test_it_hangs_during_a_long_command(daemon: DaemonProcess) -> None:
    """With the default timeouts: found out long before the command's own time is over."""
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create()["id"]
        running = exec_in_flight(pool, api, session_id)
        os.kill(init_pid(daemon, session_id), signal.SIGSTOP)
        assert code(running.result(timeout=50), 502) == "sandbox_lost"
        assert api.destroy(session_id).status_code == 204
        assert_no_trace(daemon, session_id)


def test_destroy_ends_a_running_command(daemon: DaemonProcess) -> None:
    with Api(daemon) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create()["id"]
        running = exec_in_flight(pool, api, session_id)
        assert api.destroy(session_id).status_code == 204
        assert code(running.result(timeout=SOON), 410) == "session_gone"
        assert_no_trace(daemon, session_id)


def test_a_destroyed_session_takes_all_its_processes_along(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "for i in 1 2 3; do (trap '' INT TERM HUP; setsid sleep 1000 &); done; sleep 999 &")
        pids = processes_of(daemon, session_id)
        assert len(pids) >= 6
        api.destroy(session_id)
        wait_for(lambda: all(state_of(pid) in ("", "Z", "X") for pid in pids), "all its processes are gone")


def test_a_sandbox_without_a_row_is_removed(daemon: DaemonProcess) -> None:
    """One that nobody owns, made by hand; the owned one beside it stays."""
    with Api(daemon) as api:
        owned = api.create()["id"]
    daemon.stop()
    stray = "ses_" + "0" * 22 + "stra"
    asyncio.run(_make_stray(daemon.state_dir, stray))
    assert containers(daemon) == sorted([stray, owned])
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: containers(daemon) == [owned], "the stray is removed")
        assert api.out(owned, "echo alive") == "alive"
        assert code(api.call("GET", f"/v1/sessions/{stray}"), 404) == "session_not_found"
        api.destroy(owned)
    assert_no_trace(daemon, stray, owned)


async def _make_stray(state_dir: Path, session_id: str) -> None:
    driver = OciDriver(state_dir)
    await driver.prepare()
    link_dir = state_dir / "link" / session_id
    link_dir.mkdir(parents=True, mode=0o711)
    images = ImageStore(state_dir / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    await driver.create(
        SandboxSpec(
            session_id=session_id,
            image=await images.resolve("host"),
            limits=Limits(cpus=1, memory_mb=128, pids=64, disk_mb=64),
            network=Network.NONE,
            writable_root=False,
            env={},
            link_dir=link_dir,
            token="of no use",
        )
    )
    await driver.close()


@pytest.mark.parametrize("how", ["lost", "older"])
def test_a_database_that_does_not_know_a_session(daemon: DaemonProcess, how: str) -> None:
    """It is set aside within a tick, and comes back with its files and its processes."""
    database, older = daemon.state_dir / "holdfast.db", daemon.state_dir / "older.db"
    daemon.stop()
    shutil.copy(database, older)
    daemon.start()
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "A=kept; echo files > /workspace/f; sleep 1000 & echo $! > /tmp/pid")
    daemon.kill()
    for path in daemon.state_dir.glob("holdfast.db*"):
        path.unlink()
    if how == "older":
        older.rename(database)
    daemon.start()
    with Api(daemon) as api:
        ticks = body(api.call("GET", "/v1/strays"), 200)["strays"]
        assert [(one["id"], one["kind"]) for one in ticks] == [(session_id, "session")]
        wait_for(lambda: daemon.log.read_text().count("stray.set_aside") >= 1, "it is told")
        assert containers(daemon) == [session_id]
        body(api.call("POST", f"/v1/strays/{session_id}/adopt"), 200)
        assert (
            api.out(session_id, "echo $A $(cat /workspace/f); kill -0 $(cat /tmp/pid) && echo runs")
            == "kept files\nruns"
        )
        api.destroy(session_id)
    assert_no_trace(daemon, session_id)


def test_half_a_sandbox_without_a_row_is_removed(daemon: DaemonProcess) -> None:
    """A directory with nothing but a beginning in it."""
    stray = "ses_" + "0" * 22 + "half"
    daemon.stop()
    (daemon.state_dir / "oci" / stray / "disk").mkdir(parents=True)
    (daemon.state_dir / "oci" / stray / "config.json").write_text("{")
    daemon.start()
    assert_no_trace(daemon, stray)


def test_two_daemons_on_one_state(daemon: DaemonProcess) -> None:
    """The second refuses, says why and who the first is, and disturbs nothing."""
    with Api(daemon) as api:
        session_id = api.create()["id"]
        second = DaemonProcess()
        second.state_dir.rmdir()
        second.state_dir = daemon.state_dir
        second.log = daemon.state_dir / "second.log"
        second._settings["state_dir"] = str(daemon.state_dir)
        second.start(wait=False)
        assert second._process is not None
        assert second._process.wait(timeout=30) == 1
        said = second.log.read_text()
        assert str(daemon.pid) in said and str(daemon.state_dir) in said and "another daemon" in said
        assert "Traceback" not in said
        assert api.out(session_id, "echo undisturbed") == "undisturbed"
        daemon.restart()
    with Api(daemon) as api:
        assert api.out(session_id, "echo undisturbed") == "undisturbed"


def test_the_same_key_after_a_crash_gives_the_same_session(daemon: DaemonProcess) -> None:
    """Not a fresh one in its place: whoever asks again learns that theirs has crashed."""
    key = new_key()
    with Api(daemon) as api:
        session_id = api.create(key)["id"]
        os.kill(init_pid(daemon, session_id), signal.SIGKILL)
        wait_for(lambda: api.status(session_id) == "error", "the crash is noticed")
        again = api.create(key)
        assert (again["id"], again["status"], again["reason"]) == (session_id, "error", "crashed")
        assert containers(daemon) in ([], [session_id])
        api.destroy(session_id)
