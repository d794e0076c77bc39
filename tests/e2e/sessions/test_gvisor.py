"""A whole daemon with gVisor: the shell is the same, and sessions sleep with their memory on disk.

Of the shell corpus one case per theme is run, and all of them with ``TEST_WHOLE_SUITE=1``.
"""

import os
from collections.abc import Iterator
from unittest import SkipTest

import httpx2
import pytest

from e2e.sessions.test_shell_corpus import CASES, Case, run_case
from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.gvisor import unusable_gvisor
from support.machine.leftovers import leftovers
from support.machine.machine import assert_no_trace

FIRST_OF_EACH_THEME = list({case.theme: case for case in reversed(CASES)}.values())
SELECTED = CASES if os.environ.get("TEST_WHOLE_SUITE") else FIRST_OF_EACH_THEME
NO_LS = "in this build `ls` and `stat` of coreutils 9 fail: its kernel refuses their statx"
NO_REAPER = "its kernel has no subreapers: who started an orphan cannot be told"
TOO_LONG = "its kernel has another error for an argument or environment that is too long"
NO_ORDER = "its inotify does not tell who wrote first"
OTHERWISE = {
    "bytes/long-argument-to-a-program": TOO_LONG,
    "bytes/output-order-of-builtins": NO_ORDER,
    "bytes/output-order-of-many-lines": NO_ORDER,
    "forgery/children-inherit-no-control": NO_LS,
    "killers/environment-too-large": TOO_LONG,
    "killers/exec-closes-stderr": NO_LS,
    "request/env-path": NO_LS,
    "restart/restart-many-times": NO_LS,
    "state/umask-persists": NO_LS,
    "timeouts/timeout-ends-escapees": NO_REAPER,
    "timeouts/timeout-ends-escapees-without-environment": NO_REAPER,
}
"""Cases in which gVisor itself differs from Linux."""
COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_gvisor()
    if reason:
        raise SkipTest(reason)  # one line for all tests, unlike pytest.skip
    with DaemonProcess(runtime="runsc", max_sessions=400, reap_interval_seconds=0.5, disk_limit_mb=64) as process:
        process.keep_port()
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.mark.parametrize("case", SELECTED, ids=lambda case: case.id)
def test_the_shell_is_the_same(case: Case, client: httpx2.Client) -> None:
    if case.id in OTHERWISE:
        pytest.skip(OTHERWISE[case.id])
    run_case(case, client)


def goes_on(api: Api, session: str) -> None:
    before = int(api.out(session, "cat /workspace/count") or 0)
    wait_for(lambda: int(api.out(session, "cat /workspace/count") or 0) > before, "the counter goes on")


def test_a_restored_runner_rests(api: Api) -> None:
    """Its epoll may report a pipe that was closed before the checkpoint, without end."""
    session = str(api.create()["id"])
    api.exec(session, "(while :; do sleep 0.2; done) &")
    assert api.http.post(f"/v1/sessions/{session}/hibernate").json()["paused_as"] == "memory"
    api.http.post(f"/v1/sessions/{session}/restore").raise_for_status()
    used = "read -ra of < /proc/1/stat; echo $((of[13] + of[14]))"
    before = int(api.out(session, used))
    api.exec(session, "sleep 3")
    assert int(api.out(session, used)) - before < 100, "a third of a CPU for nothing, or more"
    api.destroy(session)


def test_memory_outlives_the_daemon(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session = str(api.create()["id"])
        api.exec(session, f"kept=yes; cd /tmp; echo here > /workspace/file; {COUNTER}")
        goes_on(api, session)
        asleep = api.http.post(f"/v1/sessions/{session}/hibernate").json()
        assert (asleep["status"], asleep["paused_as"]) == ("paused", "memory"), asleep
    assert not [line for line in leftovers(session) if line.split()[0] in ("process", "mount", "control")]
    daemon.restart()
    with Api(daemon) as api:
        assert api.session(session)["paused_as"] == "memory"
        woken = api.http.post(f"/v1/sessions/{session}/restore").json()
        assert (woken["id"], woken["status"], woken["restored"]) == (session, "active", "memory"), woken
        assert api.out(session, "echo $kept $PWD; cat /workspace/file") == "yes /tmp\nhere"
        goes_on(api, session)
        api.destroy(session)
        assert_no_trace(daemon, session)


def test_a_fork_goes_on_and_so_does_the_original(daemon: DaemonProcess, api: Api) -> None:
    session = str(api.create()["id"])
    api.exec(session, f"kept=yes; cd /tmp; {COUNTER}")
    goes_on(api, session)
    forked = api.http.post(f"/v1/sessions/{session}/fork").json()
    assert (forked["status"], forked["restored"]) == ("active", "memory"), forked
    fork = str(forked["id"])
    assert api.out(fork, "echo $kept $PWD; echo mine > /workspace/mine") == "yes /tmp"
    goes_on(api, fork)
    goes_on(api, session)
    assert api.out(session, "[ -e /workspace/mine ] || echo apart") == "apart"
    daemon.restart()
    goes_on(api, fork)
    api.destroy(fork)
    api.destroy(session)
    assert_no_trace(daemon, fork)


def test_programs_have_threads(api: Api) -> None:
    session = str(api.create()["id"])
    assert api.out(session, "python3 -c 'import threading as t; t.Thread(target=print, args=(1,)).start()'") == "1"
    api.destroy(session)


def test_use_wakes_it_and_a_program_goes_on(api: Api) -> None:
    session = str(api.create()["id"])
    started = api.http.post(
        f"/v1/sessions/{session}/processes", json={"cmd": "read line; echo got $line", "stdin": True}
    )
    assert started.status_code == 201, started.text
    process = started.json()["process_id"]
    assert api.http.post(f"/v1/sessions/{session}/hibernate", json={"as": "memory"}).status_code == 200
    given = api.http.post(f"/v1/sessions/{session}/processes/{process}/stdin", json={"text": "it\n"})
    assert given.status_code in (200, 204), given.text
    wait_for(
        lambda: "got it" in api.http.get(f"/v1/sessions/{session}/processes/{process}/output").text,
        "the program has read what was written after it was restored",
    )
    api.destroy(session)


def test_files_alone_if_asked_for(api: Api) -> None:
    session = str(api.create()["id"])
    api.exec(session, f"kept=yes; {COUNTER}")
    asleep = api.http.post(f"/v1/sessions/{session}/hibernate", json={"as": "files"}).json()
    assert asleep["paused_as"] == "files", asleep
    assert api.http.post(f"/v1/sessions/{session}/restore").json()["restored"] == "files"
    assert api.out(session, "echo $kept; pgrep -c sleep; true") == "yes\n0"
    api.destroy(session)


def test_the_way_out_of_memory_that_cannot_be_restored(api: Api, daemon: DaemonProcess) -> None:
    session = str(api.create()["id"])
    api.exec(session, "kept=yes; cd /tmp; echo here > /workspace/file")
    assert api.http.post(f"/v1/sessions/{session}/hibernate").json()["paused_as"] == "memory"
    image = daemon.state_dir / "oci" / session / "memory"
    for path in image.iterdir():
        path.write_bytes(b"damaged" + path.read_bytes()[7:1000])
    failed = api.http.post(f"/v1/sessions/{session}/restore")
    assert failed.status_code == 503, failed.text
    assert '{"as": "files"}' in failed.json()["error"]["message"]
    assert api.session(session)["paused_as"] == "memory"
    assert image.is_dir(), "the checkpoint is gone"
    woken = api.http.post(f"/v1/sessions/{session}/restore", json={"as": "files"}).json()
    assert woken["restored"] == "files", woken
    assert api.out(session, "echo $kept $PWD; cat /workspace/file") == "yes /tmp\nhere"
    api.destroy(session)
    assert_no_trace(daemon, session)


def test_the_end_by_memory_is_told(api: Api) -> None:
    session = str(api.create(limits={"memory_mb": 96})["id"])
    answer = api.try_exec(session, "head -c 400M /dev/zero | tail -c 400M | wc -c")
    assert answer.status_code == 502, answer.text
    assert answer.json()["error"]["code"] == "sandbox_lost"
    wait_for(lambda: api.status(session) == "error", "the crash is reported")
    assert "memory" in api.session(session)["error"]
    api.destroy(session)
