"""What real sandboxes use, that their limits hold, and what is said when memory runs out."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sdk import SyncClient
from support.api import Api, Json, body, code
from support.daemons.daemon import DaemonProcess, wait_for

MIB = 1 << 20
HOG = "head -c 400M /dev/zero | tail -c 400M > /dev/null"


@pytest.fixture(scope="module")
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.fixture(scope="module")
def small(api: Api) -> Iterator[str]:
    """A session with little of everything."""
    session_id = str(api.create(limits={"cpus": 0.5, "memory_mb": 96, "pids": 40, "disk_mb": 32})["id"])
    yield session_id
    api.destroy(session_id)


def stats(api: Api, session_id: str) -> Json:
    return body(api.call("GET", f"/v1/sessions/{session_id}/stats"), 200)


def test_what_is_used_is_seen(api: Api, small: str) -> None:
    before = stats(api, small)
    assert (before["cpu_limit"], before["memory_limit_bytes"], before["processes_limit"]) == (0.5, 96 * MIB, 40)
    assert 20 * MIB <= before["disk_limit_bytes"] <= 32 * MIB
    api.out(
        small,
        "head -c 5M /dev/zero > /workspace/five; sleep 60 & sleep 60 & held=$(head -c 20M /dev/zero | tr '\\0' x)",
    )
    after = stats(api, small)
    assert 5 * MIB <= after["disk_bytes"] - before["disk_bytes"] <= 6 * MIB
    assert after["processes"] == before["processes"] + 2
    assert 20 * MIB <= after["memory_bytes"] - before["memory_bytes"] <= 60 * MIB
    assert after["memory_peak_bytes"] >= after["memory_bytes"]
    assert after["cpu_seconds"] > before["cpu_seconds"] and after["uptime_seconds"] > before["uptime_seconds"]
    api.out(small, "unset held; kill %1 %2; rm /workspace/five; wait")
    assert stats(api, small)["disk_bytes"] < before["disk_bytes"] + MIB


def test_a_cache_of_files_is_not_counted_as_memory(api: Api, small: str) -> None:
    """What was written and may be dropped from memory at any time says nothing about how much is needed."""
    before = stats(api, small)["memory_bytes"]
    api.out(small, "head -c 16M /dev/zero > /workspace/file; sync /workspace/file; cat /workspace/file | wc -c")
    assert stats(api, small)["memory_bytes"] < before + 12 * MIB
    api.out(small, "rm /workspace/file")


def test_the_disk_limit_holds_everywhere(api: Api) -> None:
    """Also for the layers over the system directories of a writable root."""
    session_id = api.create(writable_root=True, limits={"disk_mb": 32})["id"]
    try:
        for place in ("/workspace", "/tmp", "/usr/local", "/var", "/root"):
            full = api.exec(session_id, f"head -c 64M /dev/zero > {place}/fill")
            assert full["exit_code"] != 0 and "No space left" in full["stderr"], f"{place}: {full}"
            used = stats(api, session_id)
            assert used["disk_limit_bytes"] - used["disk_bytes"] < MIB, f"{place}: {used}"
            assert api.out(session_id, f"rm {place}/fill; echo works > {place}/small; cat {place}/small") == "works"
    finally:
        api.destroy(session_id)


def test_the_process_limit_is_reached_and_seen(api: Api, small: str) -> None:
    result = api.exec(small, "while :; do sleep 60 & done", timeout_ms=3000)
    assert result["timed_out"] or "fork" in result["stderr"]
    assert stats(api, small)["processes"] <= 40
    api.exec(small, "kill $(jobs -p); wait", timeout_ms=10_000)
    assert api.out(small, "echo alive") == "alive"


@pytest.mark.parametrize(
    ("cmd", "exit_code"),
    [(HOG, 137), (f"({HOG}); true", 0), (f"{HOG}; exit 5", 5), (f"exec bash -c '{HOG}'", 137)],
    ids=["killed", "hidden by what follows", "ends the shell too", "instead of the shell"],
)
def test_running_out_of_memory_is_told(api: Api, small: str, cmd: str, exit_code: int) -> None:
    before = stats(api, small)["oom_kills"]
    result = api.exec(small, cmd)
    assert (result["exit_code"], result["oom_killed"]) == (exit_code, True), result
    assert body(api.try_result(small, result["exec_id"]), 200) == result
    assert stats(api, small)["oom_kills"] > before
    after = api.exec(small, "echo alive; kill -9 $BASHPID")
    assert (after["stdout"], after["exit_code"], after["oom_killed"]) == ("alive\n", 137, False), "killed by itself"


def test_a_kill_in_the_background_is_not_blamed_on_the_next_command(
    api: Api, small: str, daemon: DaemonProcess
) -> None:
    before = stats(api, small)["oom_kills"]
    api.out(small, f"(sleep 0.3; {HOG}) & echo started")
    wait_for(lambda: stats(api, small)["oom_kills"] > before, "it is killed")
    assert api.exec(small, "true")["oom_killed"] is False
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if '"session.oom"' in line]
    assert [line for line in lines if line["session_id"] == small]


def test_the_command_line_says_it(api: Api, small: str, daemon: DaemonProcess) -> None:
    done = cli(daemon, "exec", small, "--", HOG)
    assert done.returncode == 137
    assert "holdfast: the command was killed because the sandbox ran out of memory (limit 96 MB)" in done.stderr
    heads, *rows = [line.split("\t") for line in cli(daemon, "ls").stdout.splitlines()]
    [row] = [dict(zip(heads, row, strict=True)) for row in rows if row[0] == small]
    assert row["CPU"].endswith("s") and row["MEM"].endswith("/96M") and row["PROCS"].endswith("/40")
    assert "/" in row["DISK"]


def cli(daemon: DaemonProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("holdfast")
    env = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_sdk_has_it(api: Api, small: str, daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client:
        session = client.get_session(small)
        assert session.stats().memory_limit_bytes == 96 * MIB
        [listed] = [one for one in client.list_sessions(stats=True) if one.id == small]
        assert listed.info.stats is not None and listed.info.stats.processes_limit == 40
        assert session.exec(HOG).oom_killed


def test_a_session_that_is_gone_has_no_stats(api: Api) -> None:
    session_id = api.create()["id"]
    api.destroy(session_id)
    assert code(api.call("GET", f"/v1/sessions/{session_id}/stats"), 410) == "session_gone"
    [listed] = [one for one in api.sessions(status="destroyed", stats=True) if one["id"] == session_id]
    assert listed["stats"] is None


def test_looking_does_not_keep_a_session_alive(api: Api) -> None:
    session = api.create(ttl_seconds=600)
    stats(api, session["id"])  # a request later, so that use would be seen in the microseconds
    assert api.session(session["id"])["last_activity_at"] == session["last_activity_at"]
    api.destroy(session["id"])
